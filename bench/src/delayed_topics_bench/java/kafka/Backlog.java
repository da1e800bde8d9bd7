import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * A backlog that becomes visible at one moment: it is written in one transaction, and its readers read committed records only.
 *
 * <p>fill: writes new records. copy: writes the hopped records of another delayed topic as a worker has written them, with another
 * due time. read: reads the records that a topic has now.
 */
final class Backlog {
    private static final String DUE_AT = "dt-due-at";

    private Backlog() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        switch (arguments[0]) {
            case "fill" -> fill(options);
            case "copy" -> copy(options);
            case "read" -> read(options);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    static Headers headers() {
        return new RecordHeaders(new Header[] {
            new RecordHeader("trace", "0123456789abcdef".getBytes(StandardCharsets.US_ASCII)),
            new RecordHeader("kind", "order".getBytes(StandardCharsets.US_ASCII)),
            new RecordHeader("source", "bench".getBytes(StandardCharsets.US_ASCII)),
        });
    }

    static byte[] key(int number) {
        return String.format("%08d", number).getBytes(StandardCharsets.US_ASCII);
    }

    private static void fill(Options options) throws Exception {
        int count = options.number("records");
        Payload payload = new Payload(options.number("size"));
        Samples samples = new Samples(count, 0);
        try (KafkaProducer<byte[], byte[]> producer = transactional(options)) {
            for (int n = 0; n < count; n++) {
                int number = n;
                samples.sent(n, Samples.nowUs());
                producer.send(
                    new ProducerRecord<>(options.text("topic"), null, key(n), payload.value(n), headers()),
                    (metadata, error) -> {
                        if (error == null) {
                            samples.acked(number, Samples.nowUs(), metadata.timestamp());
                        }
                    });
            }
            producer.flush();
            samples.write(options.directory());
            show(producer);
        }
    }

    private static void copy(Options options) throws Exception {
        String topic = options.text("topic");
        long shiftMs = options.number("shift-due-ms", 0);
        long dueAtMs = options.number("due-at-ms", -1);
        int left = options.number("records");
        try (KafkaProducer<byte[], byte[]> producer = transactional(options);
                KafkaConsumer<byte[], byte[]> consumer =
                    KafkaClients.reader(options.text("bootstrap"), options.text("source"))) {
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    List<Header> headers = new ArrayList<>();
                    for (Header header : record.headers()) { // in the order in which a worker writes them
                        headers.add(header.key().equals(DUE_AT) ? due(header, dueAtMs, shiftMs) : header);
                    }
                    producer.send(new ProducerRecord<>(topic, record.partition(), record.key(), record.value(), headers));
                    left--;
                }
            }
            producer.flush();
            show(producer);
        }
    }

    private static Header due(Header before, long dueAtMs, long shiftMs) {
        long dueMs = dueAtMs;
        if (dueMs < 0) {
            dueMs = Long.parseLong(new String(before.value(), StandardCharsets.US_ASCII)) + shiftMs;
        }
        return new RecordHeader(DUE_AT, Long.toString(dueMs).getBytes(StandardCharsets.US_ASCII));
    }

    /** Reads the topic to its end. Records count as received at their append time, because no one waits for them. */
    private static void read(Options options) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer =
                KafkaClients.reader(options.text("bootstrap"), options.text("topic"))) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            long most = ends.values().stream().mapToLong(Long::longValue).sum(); // includes transaction markers
            Samples samples = new Samples(0, Math.toIntExact(most));
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    long at = record.timestamp();
                    samples.received(Payload.number(record.value()), record.partition(), at * 1000, at);
                }
            }
            samples.write(options.directory());
        }
    }

    private static KafkaProducer<byte[], byte[]> transactional(Options options) {
        KafkaProducer<byte[], byte[]> producer = KafkaClients.producer(options.text("bootstrap"), Map.of(
            ProducerConfig.TRANSACTIONAL_ID_CONFIG, "backlog-" + options.text("topic"),
            ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 300_000,
            ProducerConfig.BATCH_SIZE_CONFIG, 64 << 10,
            ProducerConfig.BUFFER_MEMORY_CONFIG, 64L << 20,
            ProducerConfig.LINGER_MS_CONFIG, 5));
        producer.initTransactions();
        producer.beginTransaction();
        return producer;
    }

    private static void show(KafkaProducer<byte[], byte[]> producer) throws Exception {
        Options.say("filled");
        Options.await("show");
        long atMs = System.currentTimeMillis();
        producer.commitTransaction();
        Options.say("shown " + atMs);
    }
}
