import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.retry.annotation.Backoff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Spring's non-blocking retries: the listener fails once, so that each record comes again after a backoff of one second. */
public final class Retryable {
    static Options options;
    static Samples samples;

    private Retryable() {}

    public static void main(String[] arguments) throws Exception {
        options = new Options(arguments);
        int rate = options.number("rate");
        int count = rate * options.number("seconds");
        samples = new Samples(count, count + count / 2);
        Payload payload = new Payload(options.number("size"));
        try (var context = new AnnotationConfigApplicationContext(Application.class);
                var producer = KafkaClients.producer(options.text("bootstrap"), Map.of(ProducerConfig.LINGER_MS_CONFIG, 1))) {
            Pace.keep(rate, count, n -> {
                samples.sent(n, Samples.nowUs());
                producer.send(
                    new ProducerRecord<>(options.text("topic"), null, Backlog.key(n), payload.value(n), Backlog.headers()),
                    (metadata, error) -> {
                        if (error == null) {
                            samples.acked(n, Samples.nowUs(), Samples.UNKNOWN);
                        }
                    });
            });
            samples.awaitAll(options);
            samples.write(options.directory());
            Options.say("done");
        }
        System.exit(0);
    }

    /** The beans that a Spring application declares. */
    @Configuration
    @EnableKafka
    @EnableKafkaRetryTopic
    public static class Application {
        @Bean
        public TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        public KafkaAdmin admin() {
            return new KafkaAdmin(clients());
        }

        @Bean
        public ProducerFactory<byte[], byte[]> producers() {
            return new DefaultKafkaProducerFactory<>(clients(), new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Bean
        public KafkaTemplate<byte[], byte[]> template() {
            return new KafkaTemplate<>(producers());
        }

        @Bean
        public ConsumerFactory<byte[], byte[]> consumers() {
            Map<String, Object> config = clients();
            config.put(ConsumerConfig.GROUP_ID_CONFIG, options.text("topic"));
            config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
            return new DefaultKafkaConsumerFactory<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Bean
        public ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
            var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            factory.setConsumerFactory(consumers());
            factory.setConcurrency(4);
            return factory;
        }

        @Bean
        public String topicName() {
            return options.text("topic");
        }

        @Bean
        public FailsOnce listener() {
            return new FailsOnce();
        }

        private static Map<String, Object> clients() {
            return new HashMap<>(Map.of(
                "bootstrap.servers", options.text("bootstrap"),
                "send.buffer.bytes", KafkaClients.BY_THE_SYSTEM,
                "receive.buffer.bytes", KafkaClients.BY_THE_SYSTEM));
        }
    }

    /** The first delivery of a record fails, and the second counts as its receipt. */
    public static class FailsOnce {
        @RetryableTopic(
            attempts = "2", backoff = @Backoff(delay = 1000), kafkaTemplate = "template", numPartitions = "8")
        @KafkaListener(topics = "#{@topicName}")
        public void hear(ConsumerRecord<byte[], byte[]> record) {
            if (record.topic().equals(options.text("topic"))) {
                throw new IllegalStateException("not now");
            }
            samples.received(Payload.number(record.value()), record.partition(), Samples.nowUs(), Samples.UNKNOWN);
        }
    }
}
