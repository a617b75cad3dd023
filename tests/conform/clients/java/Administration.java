/** The administrative tasks of the adapter. */
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
class Administration {
    static void call() throws Exception {
        var place = Task.place;
        var admin = Admin.create(Task.config());
        var broker = new ConfigResource(ConfigResource.Type.BROKER, Task.env.getOrDefault("BROKER", ""));
        KafkaFuture<?> done = switch (Task.name) {
            case "create-topic" -> admin.createTopics(List.of(new NewTopic(place.topic(), 1, (short) 1))).all();
            case "delete-topic" -> admin.deleteTopics(List.of(place.topic())).all();
            case "add-partitions" -> admin.createPartitions(Map.of(place.topic(), NewPartitions.increaseTo(3))).all();
            case "elect-leaders" -> admin.electLeaders(ElectionType.PREFERRED, Set.of(place)).all();
            case "describe-broker" -> admin.describeConfigs(List.of(broker)).all();
            case "delete-group" -> admin.deleteConsumerGroups(List.of(Task.env.get("GROUP"))).all();
            case "list-offsets" -> admin.listOffsets(Map.of(place, OffsetSpec.forTimestamp(Long.parseLong(Task.env.get("TIMESTAMP"))))).partitionResult(place);
            default -> null;
        };
        if (done == null) System.exit(127);
        if (done.get() instanceof ListOffsetsResult.ListOffsetsResultInfo found) Task.tell(place.partition(), found.offset(), "");
    }
}
