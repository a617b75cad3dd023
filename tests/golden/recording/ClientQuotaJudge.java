// Throttles clients with the quota managers of Kafka's jars: java -cp JARS ClientQuotaJudge.java
// One JSON object a line on standard input: {num, seconds, kind, steps}; kind is "bytes", "requests" or "mutations". A step is
// [ms, "bound", user or "", client or "", bound] with <default> for default entities, or [ms, how, user, client, value]; how is "record", for
// mutations "strict" or "permissive". For each recording the list of results on standard output has the throttle time, and -1 before
// it where mutations are refused.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.server.ClientQuotaManager;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.ControllerMutationQuota;
import kafka.server.ControllerMutationQuotaManager;
import kafka.server.QuotaType;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

public class ClientQuotaJudge {
    static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            ObjectNode result = MAPPER.createObjectNode();
            measure(MAPPER.readTree(line), result.putArray("throttled"));
            System.out.println(MAPPER.writeValueAsString(result));
            System.out.flush();
        }
    }

    static void measure(JsonNode order, ArrayNode throttled) throws Exception {
        StandingTime time = new StandingTime();
        Metrics metrics = new Metrics(new MetricConfig(), List.of(), time);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(order.get("num").asInt(), order.get("seconds").asInt());
        ClientQuotaManager quotas = switch (order.get("kind").asText()) {
            case "bytes" -> new ClientQuotaManager(config, metrics, QuotaType.Produce$.MODULE$, time, "", Option.empty());
            case "requests" -> new ClientRequestQuotaManager(config, metrics, time, "", Option.empty());
            default -> new ControllerMutationQuotaManager(config, metrics, time, "", Option.empty());
        };
        for (JsonNode step : order.get("steps")) {
            time.now = step.get(0).asLong();
            String how = step.get(1).asText(), user = step.get(2).asText(), client = step.get(3).asText();
            double value = step.get(4).asDouble();
            Session session = new Session(new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
            switch (how) {
                case "bound" -> quotas.updateQuota(present(user), present(client), present(client), Option.apply(new Quota(value, true)));
                case "record" -> throttled.add(quotas.recordAndGetThrottleTimeMs(session, client, value, time.now));
                default -> {
                    ControllerMutationQuotaManager mutations = (ControllerMutationQuotaManager) quotas;
                    ControllerMutationQuota quota = how.equals("strict")
                        ? mutations.newStrictQuotaFor(session, client) : mutations.newPermissiveQuotaFor(session, client);
                    try {
                        quota.record(value);
                    } catch (ThrottlingQuotaExceededException refused) {
                        throttled.add(-1);
                    }
                    throttled.add(quota.throttleTime());
                }
            }
        }
        quotas.shutdown();
        metrics.close();
    }

    static Option<String> present(String name) {
        return name.isEmpty() ? Option.empty() : Option.apply(name);
    }

    static class StandingTime implements Time {
        volatile long now;

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
