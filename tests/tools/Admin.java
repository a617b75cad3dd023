// A thin command line over Kafka's AdminClient, so that stories can ask it things: java -cp JARS Admin.java BOOTSTRAP COMMAND ARGUMENTS...
// It prints what the client returns, sorted, or the class of the exception that comes instead. Works with the clients of 3.9 and 4.0.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

public class Main {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("default.api.timeout.ms", "20000");
        properties.put("request.timeout.ms", "10000");
        String[] rest = Arrays.copyOfRange(arguments, 2, arguments.length);
        try (Admin admin = Admin.create(properties)) {
            Client client = new Client(admin);
            switch (arguments[1]) {
                case "cluster": client.cluster(); break;
                case "topics": client.topics(); break;
                case "create": client.create(rest[0], rest[1], rest[2]); break;
                case "assign": client.assign(rest[0], rest[1]); break;
                case "grow": client.grow(rest[0], rest[1]); break;
                case "delete": client.delete(rest); break;
                case "describe": client.describe(rest); break;
                case "elect": client.elect(rest[0], Arrays.copyOfRange(rest, 1, rest.length)); break;
                case "set": client.set(rest[0], rest[1], rest[2], Arrays.copyOfRange(rest, 3, rest.length)); break;
                case "configs": client.configs(rest[0], rest[1], Arrays.copyOfRange(rest, 2, rest.length)); break;
                default: throw new IllegalArgumentException(arguments[1]);
            }
        }
    }
}

class Client {
    final Admin admin;

    Client(Admin admin) {
        this.admin = admin;
    }

    /** The value of a future as text, or the class of what went wrong. */
    static <T> String of(KafkaFuture<T> future) throws InterruptedException {
        try {
            return String.valueOf(future.get());
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        }
    }

    static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    void cluster() throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        System.out.println("nodes " + new TreeSet<>(ids(found.nodes().get())));
        System.out.println("controller " + found.controller().get().id());
        System.out.println("operations " + found.authorizedOperations().get());
    }

    void topics() throws Exception {
        System.out.println(new TreeSet<>(admin.listTopics().names().get()));
    }

    void create(String name, String partitions, String factor) throws Exception {
        NewTopic topic = new NewTopic(name, Optional.of(Integer.valueOf(partitions)), Optional.of(Short.valueOf(factor)));
        CreateTopicsResult result = admin.createTopics(List.of(topic));
        System.out.println(of(result.values().get(name)) + ", partitions " + of(result.numPartitions(name)) + ", factor " + of(result.replicationFactor(name)));
    }

    void assign(String name, String replicas) throws Exception {
        Map<Integer, List<Integer>> lists = new HashMap<>();
        for (String list : replicas.split(",")) {
            lists.put(lists.size(), Arrays.stream(list.split(":")).map(Integer::valueOf).collect(Collectors.toList()));
        }
        System.out.println(of(admin.createTopics(List.of(new NewTopic(name, lists))).values().get(name)));
    }

    void grow(String name, String count) throws Exception {
        System.out.println(of(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(Integer.parseInt(count)))).values().get(name)));
    }

    void delete(String... names) throws Exception {
        Map<String, KafkaFuture<Void>> results = new TreeMap<>(admin.deleteTopics(List.of(names)).topicNameValues());
        for (Map.Entry<String, KafkaFuture<Void>> each : results.entrySet()) {
            System.out.println(each.getKey() + " " + of(each.getValue()));
        }
    }

    void describe(String... names) throws Exception {
        Map<String, KafkaFuture<TopicDescription>> results = new TreeMap<>(admin.describeTopics(List.of(names)).topicNameValues());
        for (Map.Entry<String, KafkaFuture<TopicDescription>> each : results.entrySet()) {
            try {
                TopicDescription found = each.getValue().get();
                System.out.println(found.name() + " internal " + found.isInternal() + " operations " + found.authorizedOperations());
                for (TopicPartitionInfo info : found.partitions()) {
                    String leader = info.leader() == null ? "none" : info.leader().idString();
                    System.out.println("  " + info.partition() + " leader " + leader + " replicas " + ids(info.replicas()) + " isr " + ids(info.isr()));
                }
            } catch (ExecutionException failed) {
                System.out.println(each.getKey() + " " + failed.getCause().getClass().getSimpleName());
            }
        }
    }

    void elect(String kind, String... partitions) throws Exception {
        Set<TopicPartition> named = partitions.length == 0 ? null : new HashSet<>();
        for (String each : partitions) {
            int dash = each.lastIndexOf('-');
            named.add(new TopicPartition(each.substring(0, dash), Integer.parseInt(each.substring(dash + 1))));
        }
        Map<String, String> lines = new TreeMap<>();
        admin.electLeaders(ElectionType.valueOf(kind.toUpperCase()), named).partitions().get().forEach((partition, failure) ->
            lines.put(partition.toString(), failure.map(f -> f.getClass().getSimpleName()).orElse("elected")));
        lines.forEach((partition, text) -> System.out.println(partition + " " + text));
    }

    static ConfigResource resource(String kind, String name) {
        return new ConfigResource(ConfigResource.Type.valueOf(kind.toUpperCase()), name.equals("default") ? "" : name);
    }

    void set(String kind, String name, String operation, String... pairs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (String pair : pairs) {
            String[] parts = pair.split("=", 2);
            ConfigEntry entry = new ConfigEntry(parts[0], parts.length == 2 ? parts[1] : null);
            operations.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(operation.toUpperCase())));
        }
        ConfigResource resource = resource(kind, name);
        System.out.println(of(admin.incrementalAlterConfigs(Map.of(resource, operations)).values().get(resource)));
    }

    void configs(String kind, String name, String... keys) throws Exception {
        ConfigResource resource = resource(kind, name);
        Set<String> wanted = new HashSet<>(Arrays.asList(keys));
        try {
            List<String> lines = new ArrayList<>();
            for (ConfigEntry entry : admin.describeConfigs(Collections.singleton(resource)).values().get(resource).get().entries()) {
                if (wanted.isEmpty() || wanted.contains(entry.name())) {
                    String flags = (entry.isReadOnly() ? " read-only" : "") + (entry.isSensitive() ? " sensitive" : "");
                    lines.add(entry.name() + "=" + entry.value() + " " + entry.source() + " " + entry.type() + flags);
                }
            }
            Collections.sort(lines);
            lines.forEach(System.out::println);
        } catch (ExecutionException failed) {
            System.out.println(failed.getCause().getClass().getSimpleName());
        }
    }
}
