import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * Refuses the topic settings that the broker's setting {@code refused.settings} lists, and new topics with more partitions than
 * {@code most.partitions}, as managed services do.
 */
public class RefusingPolicy implements CreateTopicPolicy, AlterConfigPolicy {
  private Set<String> refused = Set.of();
  private int mostPartitions = Integer.MAX_VALUE;

  @Override
  public void configure(Map<String, ?> settings) {
    refused = Set.of(String.valueOf(settings.get("refused.settings")).split(" "));
    if (settings.get("most.partitions") instanceof String most) {
      mostPartitions = Integer.parseInt(most);
    }
  }

  @Override
  public void validate(CreateTopicPolicy.RequestMetadata request) {
    refuse(request.topic(), request.configs());
    Integer partitions = request.numPartitions();
    if (partitions != null && partitions > mostPartitions) {
      throw new PolicyViolationException("A topic must not have more than " + mostPartitions + " partitions");
    }
  }

  @Override
  public void validate(AlterConfigPolicy.RequestMetadata request) {
    if (request.resource().type() == ConfigResource.Type.TOPIC) {
      refuse(request.resource().name(), request.configs());
    }
  }

  private void refuse(String topic, Map<String, String> settings) {
    if (topic.startsWith("__")) {
      return; // a broker creates internal topics, such as __transaction_state, in the same way, with its own settings
    }
    for (String name : refused) {
      if (settings.containsKey(name)) {
        throw new PolicyViolationException("Altering topic config property '" + name + "' is disallowed");
      }
    }
  }

  @Override
  public void close() {}
}
