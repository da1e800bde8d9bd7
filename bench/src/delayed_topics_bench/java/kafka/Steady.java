import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Headers;

/**
 * Sends records to a front topic at a steady rate, and receives them from the ready topic.
 *
 * <p>levels=1,2 spreads the records evenly over these entries of the delay list. In addition, one record every 5 ms goes to a topic
 * of its own. The time until its acknowledgement is the broker's share, and is written to acks/.
 */
final class Steady {
    private static final int ACK_EVERY_MS = 5;

    private Steady() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        int rate = options.number("rate");
        int count = rate * options.number("seconds");
        Samples samples = new Samples(count, count + count / 2);
        AtomicBoolean done = new AtomicBoolean();
        KafkaConsumer<byte[], byte[]> consumer = KafkaClients.reader(options.text("bootstrap"), options.text("ready"));
        Thread receiver = new Thread(() -> receive(consumer, samples, done), "receiver");
        receiver.start();
        Thread prober = new Thread(() -> probeAcks(options, done), "acks");
        prober.start();
        send(options, rate, count, samples);
        Options.say("sent");
        boolean ended = samples.awaitAll(options);
        done.set(true);
        receiver.join();
        prober.join();
        samples.write(options.directory());
        Options.say(ended ? "done" : "done unfinished");
    }

    private static void send(Options options, int rate, int count, Samples samples) {
        Payload payload = new Payload(options.number("size"));
        String topic = options.text("topic");
        String[] levels = options.has("levels") ? options.text("levels").split(",") : new String[0];
        try (KafkaProducer<byte[], byte[]> producer =
                KafkaClients.producer(options.text("bootstrap"), Map.of(ProducerConfig.LINGER_MS_CONFIG, 1))) {
            Pace.keep(rate, count, n -> {
                Headers headers = Backlog.headers();
                if (levels.length > 0) {
                    headers.add("dt-delay-level", levels[n % levels.length].getBytes(StandardCharsets.US_ASCII));
                }
                samples.sent(n, Samples.nowUs());
                producer.send(
                    new ProducerRecord<>(topic, null, Backlog.key(n), payload.value(n), headers),
                    (metadata, error) -> {
                        if (error == null) {
                            samples.acked(n, Samples.nowUs(), metadata.timestamp());
                        }
                    });
            });
        }
    }

    private static void receive(KafkaConsumer<byte[], byte[]> consumer, Samples samples, AtomicBoolean done) {
        try (consumer) {
            while (!done.get()) {
                var records = consumer.poll(Duration.ofMillis(100));
                long atUs = Samples.nowUs();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    samples.received(Payload.number(record.value()), record.partition(), atUs, record.timestamp());
                }
            }
        }
    }

    private static void probeAcks(Options options, AtomicBoolean done) {
        int most = 3_600 * 1000 / ACK_EVERY_MS;
        Samples acks = new Samples(most, 0);
        try (KafkaProducer<byte[], byte[]> producer =
                KafkaClients.producer(options.text("bootstrap"), Map.of(ProducerConfig.LINGER_MS_CONFIG, 0))) {
            byte[] value = new byte[16];
            for (int n = 0; n < most && !done.get(); n++) {
                int number = n;
                acks.sent(n, Samples.nowUs());
                producer.send(new ProducerRecord<>(options.text("acks"), value), (metadata, error) -> {
                    if (error == null) {
                        acks.acked(number, Samples.nowUs(), metadata.timestamp());
                    }
                });
                Thread.sleep(ACK_EVERY_MS);
            }
            producer.flush();
            acks.write(options.directory().resolve("acks"));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
