import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataKey;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

/**
 * Prints what Kafka notes in __consumer_offsets of the members of groups with the newer protocol, each record as a line of
 * JSON with its time. Kafka has a formatter for groups with the classic protocol only.
 */
public class ConsumerGroupFormatter implements MessageFormatter {
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();

    @Override
    public void writeTo(ConsumerRecord<byte[], byte[]> record, PrintStream out) {
        CoordinatorRecord noted;
        try {
            ByteBuffer value = record.value() == null ? null : ByteBuffer.wrap(record.value());
            noted = serde.deserialize(ByteBuffer.wrap(record.key()), value);
        } catch (RuntimeException e) {
            return; // of a kind that this version of Kafka does not know
        }
        var key = noted.key();
        if (key instanceof ConsumerGroupMemberMetadataKey || key instanceof ConsumerGroupCurrentMemberAssignmentKey) {
            var line = JsonNodeFactory.instance.objectNode().put("at_ms", record.timestamp());
            line.set("key", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key));
            var value = noted.value();
            if (value != null) {
                line.set("value", CoordinatorRecordJsonConverters.writeRecordValueAsJson(value.message(), value.version()));
            }
            out.println(line);
        }
    }
}
