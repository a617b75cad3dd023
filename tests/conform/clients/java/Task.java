/** What the adapter in Java has of its environment, and what it prints (docs/conform.md). */
import java.io.StringReader;
import java.util.*;
import java.util.stream.IntStream;
import org.apache.kafka.common.TopicPartition;
class Task {
    static final Map<String, String> env = System.getenv();
    static final String name = env.get("TESTCASE"), topic = env.get("TOPIC");
    static final TopicPartition place = new TopicPartition(topic, number("PARTITION"));
    static int number(String variable) { return Integer.parseInt(env.get(variable)); }
    static List<String> values(int transaction) {
        int records = number("RECORDS"), size = number("SIZE");
        return IntStream.range(transaction * records, (transaction + 1) * records).mapToObj(each -> pad("" + each, size)).toList();
    }
    static String pad(String value, int size) { return value + ".".repeat(Math.max(0, size - value.length())); }
    /** Prints a record that was acknowledged or read. Returns whether it is the last one of a consumer. */
    static boolean tell(int partition, long offset, String value) {
        System.out.printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}%n", partition, offset, value);
        return value.equals("end");
    }
    static Properties config() throws Exception {
        var config = new Properties();
        config.load(new StringReader(env.get("CONFIG")));
        config.put("bootstrap.servers", env.get("BOOTSTRAP"));
        config.put("group.id", env.get("GROUP"));
        for (String side : List.of("key.", "value."))
            for (String way : List.of("serializer", "deserializer"))
                config.put(side + way, "org.apache.kafka.common.serialization.String" + (way.equals("serializer") ? "Serializer" : "Deserializer"));
        String assignor = Objects.equals(config.get("partition.assignment.strategy"), "range") ? "Range" : "CooperativeSticky";
        config.computeIfPresent("partition.assignment.strategy", (key, it) -> "org.apache.kafka.clients.consumer." + assignor + "Assignor");
        String module = config.getProperty("sasl.mechanism", "PLAIN").equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String login = "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";";
        config.put("sasl.jaas.config", login.formatted(module, config.get("sasl.username"), config.get("sasl.password")));
        return config;
    }
}
