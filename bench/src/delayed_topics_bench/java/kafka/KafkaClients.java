import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own Java clients as the benchmark uses them. */
final class KafkaClients {
    /** Lets the system size socket buffers. With Kafka's defaults of 64 and 128 KiB, loopback pauses for 210 ms. */
    static final int BY_THE_SYSTEM = -1;

    private KafkaClients() {}

    /** Creates a producer with acks=all and idempotence, which are Kafka's defaults. */
    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> further) {
        Properties config = new Properties();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(ProducerConfig.ACKS_CONFIG, "all");
        config.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        config.put(ProducerConfig.SEND_BUFFER_CONFIG, BY_THE_SYSTEM);
        config.put(ProducerConfig.RECEIVE_BUFFER_CONFIG, BY_THE_SYSTEM);
        config.putAll(further);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Creates a consumer of all partitions from their beginning. A topic that is still empty is read from its first record. */
    static KafkaConsumer<byte[], byte[]> reader(String bootstrap, String topic) {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        config.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 5000);
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.SEND_BUFFER_CONFIG, BY_THE_SYSTEM);
        config.put(ConsumerConfig.RECEIVE_BUFFER_CONFIG, BY_THE_SYSTEM);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
            .map(info -> new TopicPartition(topic, info.partition()))
            .collect(Collectors.toList());
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        partitions.forEach(consumer::position);
        return consumer;
    }
}
