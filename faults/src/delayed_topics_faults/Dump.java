import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics with Kafka's own consumer, for a judge that does not trust the client library that workers use.
 *
 * A request is a line on standard input: a topic and the offset to begin at for each of its partitions. The answer is a
 * line for each record up to the present stable end (partition, offset, timestamp, L for LogAppendTime, checksums of key,
 * value and foreign headers, own headers), then "end" and the offsets to begin at next. Fields are separated by tabs.
 */
public class Dump {
    static final Set<String> OWN = Set.of(
            "dt-id", "dt-attempt", "dt-group", "dt-deliver-at", "dt-delay-level", "dt-target", "dt-generation",
            "dt-created-at", "dt-done-at", "dt-root", "dt-origin", "dt-due-at", "dt-appended-at", "dt-released", "dt-hops", "dt-reason",
            "dt-error");
    static final String EXPECTED = "faults-expect";
    static final int SHOWN_BYTES = 200;
    static final long MAX_MILLIS = 120_000;

    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", "read_committed");
        properties.put("max.poll.records", 50); // fuzzed records are up to 10 MiB large
        properties.put("max.partition.fetch.bytes", 8 << 20);
        properties.put("enable.auto.commit", false);
        properties.put("key.deserializer", ByteArrayDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        var in = new BufferedReader(new InputStreamReader(System.in));
        var out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            try (var consumer = new KafkaConsumer<byte[], byte[]>(properties)) {
                answer(consumer, line.split(" "), out);
            } catch (Exception e) {
                out.println("failed\t" + e);
            }
            out.flush();
        }
    }

    static void answer(KafkaConsumer<byte[], byte[]> consumer, String[] request, PrintStream out) {
        String topic = request[0];
        int count = consumer.partitionsFor(topic).size();
        List<TopicPartition> all =
                IntStream.range(0, count).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
        consumer.assign(all);
        Map<TopicPartition, Long> ends = consumer.endOffsets(all);
        Map<TopicPartition, Long> begins = consumer.beginningOffsets(all);
        for (TopicPartition p : all) {
            long requested = p.partition() + 1 < request.length ? Long.parseLong(request[p.partition() + 1]) : 0;
            consumer.seek(p, Math.max(requested, begins.get(p)));
        }
        long until = System.currentTimeMillis() + MAX_MILLIS;
        while (all.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
            if (System.currentTimeMillis() > until) {
                throw new IllegalStateException(topic + " was not read to its end in " + MAX_MILLIS + " ms");
            }
            for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                if (r.offset() < ends.get(new TopicPartition(topic, r.partition()))) {
                    out.println(line(r));
                }
            }
        }
        var next = new TreeMap<Integer, Long>();
        ends.forEach((p, end) -> next.put(p.partition(), end));
        out.println("end\t" + next.values().stream().map(String::valueOf).collect(Collectors.joining("\t")));
    }

    static StringBuilder line(ConsumerRecord<byte[], byte[]> r) {
        var foreign = new CRC32C();
        var own = new StringBuilder();
        for (Header header : r.headers()) {
            boolean shown = OWN.contains(header.key()) || header.key().equals(EXPECTED);
            if (shown) {
                own.append('\t').append(header.key());
                if (header.value() != null) {
                    escape(own.append('='), header.value());
                }
            }
            if (!OWN.contains(header.key())) {
                foreign.update(header.key().getBytes(StandardCharsets.UTF_8));
                foreign.update(header.value() == null ? 1 : 0);
                foreign.update(header.value() == null ? new byte[0] : header.value());
            }
        }
        return new StringBuilder()
                .append(r.partition()).append('\t').append(r.offset()).append('\t').append(r.timestamp()).append('\t')
                .append(r.timestampType() == TimestampType.LOG_APPEND_TIME ? 'L' : 'C').append('\t')
                .append(checksum(r.key())).append('\t').append(checksum(r.value())).append('\t')
                .append(Long.toHexString(foreign.getValue()))
                .append(own);
    }

    static String checksum(byte[] bytes) {
        if (bytes == null) {
            return "null";
        }
        var sum = new CRC32C();
        sum.update(bytes);
        return Long.toHexString(sum.getValue()) + ":" + bytes.length;
    }

    static void escape(StringBuilder to, byte[] value) {
        for (int i = 0; i < Math.min(value.length, SHOWN_BYTES); i++) {
            int b = value[i] & 0xff;
            if (b > 0x20 && b < 0x7f && b != '%') {
                to.append((char) b);
            } else {
                to.append(String.format("%%%02x", b));
            }
        }
    }
}
