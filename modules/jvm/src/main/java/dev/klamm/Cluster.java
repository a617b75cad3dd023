package dev.klamm;

import com.fasterxml.jackson.databind.JsonNode;
import dev.klamm.Bodies.AdvanceBody;
import dev.klamm.Bodies.EffectBody;
import dev.klamm.Bodies.FailBody;
import dev.klamm.Bodies.FaultBody;
import dev.klamm.Bodies.FilterBody;
import dev.klamm.Bodies.GetFaultQuery;
import dev.klamm.Bodies.GetHoldQuery;
import dev.klamm.Bodies.GetRequestsQuery;
import dev.klamm.Bodies.HoldBody;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/** A cluster that can be steered, wherever it runs. */
public class Cluster {
    private static final long LOOK_MS = 20;

    private final String bootstrapServers;
    private final Control control;

    /** A cluster that runs already. */
    public Cluster(String bootstrapServers, Control control) {
        this.bootstrapServers = bootstrapServers;
        this.control = control;
    }

    /** {@code HOST:PORT} of each broker, separated by commas. */
    public String bootstrapServers() {
        return bootstrapServers;
    }

    /** All verbs. */
    public Control control() {
        return control;
    }

    /** A fault that was added. */
    public final class Fault {
        private final long id;

        private Fault(long id) {
            this.id = id;
        }

        /** How many requests it has hit. */
        public long hits() {
            return control.getFault(id, new GetFaultQuery()).path("hits").asLong();
        }

        /** Wait until it has hit so many requests. */
        public void waitForHits(long hits, Duration timeout) {
            control.getFault(id, new GetFaultQuery().hits(hits).timeoutMs(timeout.toMillis()));
        }

        /** Requests meet it no longer. */
        public void remove() {
            control.deleteFault(id);
        }
    }

    /** A hold of a phase. */
    public final class Hold {
        private final long id;

        private Hold(long id) {
            this.id = id;
        }

        /** Wait until something is held; what it is. */
        public JsonNode reached(Duration timeout) {
            return control.getHold(id, new GetHoldQuery().wait("reached").timeoutMs(timeout.toMillis()));
        }

        /** End the hold; what it holds goes on. */
        public void release() {
            control.releaseHold(id);
        }

        /** Let the first that is held go on. */
        public void step() {
            control.stepHold(id);
        }

        /** Let the first that is held fail with this error. */
        public void fail(String error) {
            control.failHold(id, new FailBody().error(error));
        }

        /** Kill the broker that is held first. */
        public void crash() {
            control.crashHold(id);
        }
    }

    /** Let all requests that match meet a fault. */
    public Fault fault(FilterBody filter, EffectBody effect) {
        return fault(new FaultBody().filter(filter).effect(effect));
    }

    /** Let the first requests that match meet a fault. */
    public Fault fault(FilterBody filter, EffectBody effect, int first) {
        return fault(new FaultBody().filter(filter).effect(effect).first(first));
    }

    /** Add a fault. */
    public Fault fault(FaultBody body) {
        return new Fault(control.addFault(body).path("id").asLong());
    }

    /** Hold a phase of docs/phases.md from now on. */
    public Hold hold(HoldBody body) {
        return new Hold(control.addHold(body).path("id").asLong());
    }

    /** The last requests that brokers have received, with their responses, oldest first. */
    public List<JsonNode> requests(GetRequestsQuery which) {
        List<JsonNode> requests = new ArrayList<>();
        control.getRequests(which).path("requests").forEach(requests::add);
        return requests;
    }

    /** Move the clock of brokers and coordinators. Clients go on in real time. */
    public void advance(Duration by) {
        control.advanceClock(new AdvanceBody().ms(by.toMillis()));
    }

    /** Wait until there are so many requests like these; the requests. */
    public List<JsonNode> waitForRequests(int count, GetRequestsQuery which, Duration timeout) {
        return waitFor(timeout, "fewer than " + count + " requests " + which.fields(), () -> {
            List<JsonNode> requests = requests(which);
            return requests.size() >= count ? requests : null;
        });
    }

    /** Wait until a partition has a leader: this broker, or any if it is null. The leader. */
    public int waitForLeader(String topic, int partition, Integer leader, Duration timeout) {
        return waitFor(timeout, topic + "-" + partition + " has another leader", () -> {
            int now = control.getTopic(topic).path("partitions").path(partition).path("leader").asInt(-1);
            return now >= 0 && (leader == null || leader == now) ? now : null;
        });
    }

    /** Wait until a broker is controller: this one, or any if it is null. The controller. */
    public int waitForController(Integer id, Duration timeout) {
        return waitFor(timeout, "another broker is controller", () -> {
            int now = control.getController().path("id").asInt(-1);
            return now >= 0 && (id == null || id == now) ? now : null;
        });
    }

    /** Wait until a group is in a state, such as Stable; the group. */
    public JsonNode waitForGroup(String group, String state, Duration timeout) {
        return waitFor(timeout, "group " + group + " is not " + state, () -> {
            for (JsonNode each : control.getGroups().path("groups")) {
                if (each.path("group").asText().equals(group) && each.path("state").asText().equals(state)) {
                    return each;
                }
            }
            return null;
        });
    }

    /** Undo what a test did: faults, holds, pauses, stopped brokers, configs. Topics and groups stay. */
    public void reset() {
        control.reset();
    }

    /** The number of the last request: {@link #transcript} shows what came after it. */
    public long lastRequest() {
        return requests(new GetRequestsQuery().limit(1)).stream().mapToLong(each -> each.path("number").asLong()).max().orElse(0);
    }

    /** What clients requested after a number, one line each, the first error that is not usual marked with {@code >}. */
    public String transcript(long after) {
        StringBuilder text = new StringBuilder();
        boolean isMarked = false;
        for (JsonNode each : requests(new GetRequestsQuery().clients(true).after(after).limit(200))) {
            boolean isError = each.hasNonNull("error");
            String outcome = isError ? each.get("error").asText() : each.hasNonNull("response") ? "ok" : "no response";
            boolean isUnusual = isError && !Control.USUAL_ERRORS.contains(outcome);
            text.append(isUnusual && !isMarked ? "> " : "  ").append(each.path("at").asText()).append("  broker ")
                .append(each.path("broker").asInt()).append("  ").append(each.path("api").asText()).append(" v")
                .append(each.path("version").asInt()).append("  ").append(each.path("client_id").asText("")).append("  ").append(outcome)
                .append('\n');
            isMarked |= isUnusual;
        }
        return text.toString();
    }

    private static <T> T waitFor(Duration timeout, String left, Supplier<T> look) {
        for (long until = System.nanoTime() + timeout.toNanos();;) {
            T value = look.get();
            if (value != null) {
                return value;
            }
            if (System.nanoTime() - until >= 0) {
                throw new ControlFailed("not within " + timeout.toMillis() + " ms: " + left);
            }
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException interrupted) {
                throw ControlFailed.interrupted(left);
            }
        }
    }
}
