import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** RocketMQ with a delay level (4.9), or with a timer (5) if there is no level=…. At most in-flight=… messages are unacknowledged. */
final class Delayed {
    private static final int BATCH = 64;
    private static final int TIMEOUT_MS = 20_000;

    private Delayed() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        int rate = options.number("rate");
        int count = rate * options.number("seconds");
        Samples samples = new Samples(count, count + count / 2);
        String topic = options.text("topic") + "-" + options.directory().getFileName(); // so that late messages don't count for another run
        DefaultMQProducer producer = new DefaultMQProducer("bench-" + topic);
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setDefaultTopicQueueNums(8);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        DefaultMQPushConsumer consumer = consumer(options, topic, samples);
        send(options, topic, producer, rate, count, samples);
        Options.say("sent");
        samples.awaitAll(options);
        samples.write(options.directory());
        Options.say("done");
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void send(
            Options options, String topic, DefaultMQProducer producer, int rate, int count, Samples samples) {
        Payload payload = new Payload(options.number("size"));
        int most = options.number("in-flight");
        Semaphore inFlight = new Semaphore(most);
        Pace.keep(rate, count, n -> {
            Message message = new Message(topic, payload.value(n));
            Map.of("trace", "0123456789abcdef", "kind", "order", "source", "bench").forEach(message::putUserProperty);
            if (options.has("level")) {
                message.setDelayTimeLevel(options.number("level"));
            } else {
                MessageAccessor.putProperty(message, "TIMER_DELAY_MS", options.text("delay-ms"));
            }
            inFlight.acquireUninterruptibly();
            samples.sent(n, Samples.nowUs());
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        samples.acked(n, Samples.nowUs(), Samples.UNKNOWN);
                        inFlight.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        System.err.println("rejected: " + error);
                        inFlight.release();
                    }
                });
            } catch (Exception e) {
                System.err.println("rejected: " + e);
                inFlight.release();
            }
        });
        inFlight.acquireUninterruptibly(most);
    }

    private static DefaultMQPushConsumer consumer(Options options, String topic, Samples samples) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + topic + "-consumer");
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(BATCH);
        consumer.setPullBatchSize(BATCH);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long atUs = Samples.nowUs();
            messages.forEach(message ->
                samples.received(Payload.number(message.getBody()), message.getQueueId(), atUs, Samples.UNKNOWN));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
