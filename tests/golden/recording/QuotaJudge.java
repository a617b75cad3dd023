// Measures replication with the quota manager of Kafka's jars: java -cp JARS QuotaJudge.java
// One JSON object a line on standard input: {num, seconds, steps}; a step is [ms, "record", bytes], [ms, "bound", bytes per second] or
// [ms, "look", 0]. For each "look" the list of results on standard output has [bytes per second, whether the quota is exceeded].

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.server.QuotaType;
import kafka.server.ReplicationQuotaManager;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.config.ReplicationQuotaManagerConfig;

public class QuotaJudge {
    static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            ObjectNode result = MAPPER.createObjectNode();
            measure(MAPPER.readTree(line), result.putArray("looks"));
            System.out.println(MAPPER.writeValueAsString(result));
            System.out.flush();
        }
    }

    static void measure(JsonNode order, ArrayNode looks) throws Exception {
        StandingTime time = new StandingTime();
        Metrics metrics = new Metrics(new MetricConfig(), List.of(), time);
        ReplicationQuotaManager quota = new ReplicationQuotaManager(
            new ReplicationQuotaManagerConfig(order.get("num").asInt(), order.get("seconds").asInt()),
            metrics, QuotaType.FollowerReplication$.MODULE$, time);
        for (JsonNode step : order.get("steps")) {
            time.now = step.get(0).asLong();
            switch (step.get(1).asText()) {
                case "record" -> quota.record(step.get(2).asLong());
                case "bound" -> quota.updateQuota(Quota.upperBound(step.get(2).asDouble()));
                default -> {
                    boolean exceeded = quota.isQuotaExceeded();
                    KafkaMetric rate = metrics.metrics().values().stream()
                        .filter(metric -> metric.metricName().name().equals("byte-rate")).findFirst().get();
                    looks.addArray().add((double) rate.metricValue()).add(exceeded);
                }
            }
        }
        metrics.close();
    }

    static class StandingTime implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(now);
        }

        public void sleep(long ms) {
            now += ms;
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }
}
