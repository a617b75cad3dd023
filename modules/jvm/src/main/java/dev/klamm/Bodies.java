// Made by `python -m klamm.distributions.modules` from the table of verbs; do not edit.
package dev.klamm;

import java.util.List;
import java.util.Map;

/** What is sent to the control API: objects whose fields are set one after the other. What is not set is not sent. */
public final class Bodies {
    private Bodies() {}

    /** A hold of phases. The first `nth` - 1 phases that match pass; then `count` are held, without it all until the hold is released. With `crash` the broker that reaches such a phase is killed there, and its ZooKeeper session ends; `count` is 1 unless it is given. With `fail` what reaches it fails with this error at once, with `delay_ms` it goes on after this time. */
    public static final class HoldBody extends Body {
        public HoldBody phase(String value) {
            set("phase", value);
            return this;
        }
        public HoldBody where(Map<String, ?> value) {
            set("where", value);
            return this;
        }
        public HoldBody count(long value) {
            set("count", value);
            return this;
        }
        public HoldBody nth(long value) {
            set("nth", value);
            return this;
        }
        public HoldBody crash(boolean value) {
            set("crash", value);
            return this;
        }
        public HoldBody fail(Object value) {
            set("fail", value);
            return this;
        }
        public HoldBody delayMs(long value) {
            set("delay_ms", value);
            return this;
        }
    }

    /** The error with which a held event fails. */
    public static final class FailBody extends Body {
        public FailBody error(Object value) {
            set("error", value);
            return this;
        }
        public FailBody message(String value) {
            set("message", value);
            return this;
        }
    }

    /** A fault. */
    public static final class FaultBody extends Body {
        public FaultBody filter(FilterBody value) {
            set("filter", value);
            return this;
        }
        public FaultBody effect(EffectBody value) {
            set("effect", value);
            return this;
        }
        public FaultBody first(long value) {
            set("first", value);
            return this;
        }
        public FaultBody after(long value) {
            set("after", value);
            return this;
        }
        public FaultBody probability(double value) {
            set("probability", value);
            return this;
        }
        public FaultBody seed(long value) {
            set("seed", value);
            return this;
        }
    }

    /** Which requests a fault is about; what is missing is any. Texts may end with `*`. A slow disk is about operations of logs: `broker`, `topic`, `partition`, `disk` (the operation) and `log_dir` say which. */
    public static final class FilterBody extends Body {
        public FilterBody api(Object value) {
            set("api", value);
            return this;
        }
        public FilterBody versions(List<Long> value) {
            set("versions", value);
            return this;
        }
        public FilterBody broker(long value) {
            set("broker", value);
            return this;
        }
        public FilterBody fromBroker(long value) {
            set("from_broker", value);
            return this;
        }
        public FilterBody clientId(String value) {
            set("client_id", value);
            return this;
        }
        public FilterBody principal(String value) {
            set("principal", value);
            return this;
        }
        public FilterBody topic(String value) {
            set("topic", value);
            return this;
        }
        public FilterBody topicId(String value) {
            set("topic_id", value);
            return this;
        }
        public FilterBody partition(long value) {
            set("partition", value);
            return this;
        }
        public FilterBody group(String value) {
            set("group", value);
            return this;
        }
        public FilterBody transactionalId(String value) {
            set("transactional_id", value);
            return this;
        }
        public FilterBody direction(String value) {
            set("direction", value);
            return this;
        }
        public FilterBody disk(String value) {
            set("disk", value);
            return this;
        }
        public FilterBody logDir(String value) {
            set("log_dir", value);
            return this;
        }
        public FilterBody while_(WhileBody value) {
            set("while", value);
            return this;
        }
    }

    /** A condition: while `hold` holds something, any hold holds this `phase`, `fault` exists, or `broker` has this `state`. */
    public static final class WhileBody extends Body {
        public WhileBody hold(long value) {
            set("hold", value);
            return this;
        }
        public WhileBody phase(String value) {
            set("phase", value);
            return this;
        }
        public WhileBody fault(long value) {
            set("fault", value);
            return this;
        }
        public WhileBody broker(long value) {
            set("broker", value);
            return this;
        }
        public WhileBody state(String value) {
            set("state", value);
            return this;
        }
    }

    /** What a fault does: one of these, and `delay_ms` with it or alone. `values` gives fields of the response other values, by path, such as `topics.partitions.leaderId`; see docs/control.md. */
    public static final class EffectBody extends Body {
        public EffectBody error(Object value) {
            set("error", value);
            return this;
        }
        public EffectBody message(String value) {
            set("message", value);
            return this;
        }
        public EffectBody delayMs(long value) {
            set("delay_ms", value);
            return this;
        }
        public EffectBody drop(boolean value) {
            set("drop", value);
            return this;
        }
        public EffectBody close(String value) {
            set("close", value);
            return this;
        }
        public EffectBody corrupt(boolean value) {
            set("corrupt", value);
            return this;
        }
        public EffectBody truncate(long value) {
            set("truncate", value);
            return this;
        }
        public EffectBody correlationId(long value) {
            set("correlation_id", value);
            return this;
        }
        public EffectBody loseResponse(boolean value) {
            set("lose_response", value);
            return this;
        }
        public EffectBody throttleTimeMs(long value) {
            set("throttle_time_ms", value);
            return this;
        }
        public EffectBody values(Map<String, ?> value) {
            set("values", value);
            return this;
        }
        public EffectBody unknownTags(boolean value) {
            set("unknown_tags", value);
            return this;
        }
        public EffectBody slowDiskMs(long value) {
            set("slow_disk_ms", value);
            return this;
        }
    }

    /** One more broker, with these configs besides those of all brokers. */
    public static final class NewBrokerBody extends Body {
        public NewBrokerBody config(Map<String, String> value) {
            set("config", value);
            return this;
        }
    }

    /** How a broker is stopped: with `lose_log` its logs are gone. */
    public static final class StopBody extends Body {
        public StopBody loseLog(boolean value) {
            set("lose_log", value);
            return this;
        }
    }

    /** How a broker is killed: with `expire` its ZooKeeper session ends at once; with `lose_log` its logs are gone. */
    public static final class KillBody extends Body {
        public KillBody expire(boolean value) {
            set("expire", value);
            return this;
        }
        public KillBody loseLog(boolean value) {
            set("lose_log", value);
            return this;
        }
    }

    /** The broker that becomes controller; any other than the present one without `to`. */
    public static final class MoveBody extends Body {
        public MoveBody to(long value) {
            set("to", value);
            return this;
        }
    }

    /** A topic to create. `replicas` has the brokers of each partition, in place of the two numbers. */
    public static final class TopicBody extends Body {
        public TopicBody name(String value) {
            set("name", value);
            return this;
        }
        public TopicBody partitions(long value) {
            set("partitions", value);
            return this;
        }
        public TopicBody replicationFactor(long value) {
            set("replication_factor", value);
            return this;
        }
        public TopicBody replicas(List<List<Long>> value) {
            set("replicas", value);
            return this;
        }
        public TopicBody configs(Map<String, String> value) {
            set("configs", value);
            return this;
        }
    }

    /** How many partitions a topic is to have. `replicas` has the brokers of each new one. */
    public static final class PartitionsBody extends Body {
        public PartitionsBody partitions(long value) {
            set("partitions", value);
            return this;
        }
        public PartitionsBody replicas(List<List<Long>> value) {
            set("replicas", value);
            return this;
        }
    }

    /** Which member of a group; all without it. */
    public static final class MemberBody extends Body {
        public MemberBody member(String value) {
            set("member", value);
            return this;
        }
    }

    /** A broker. */
    public static final class BrokerBody extends Body {
        public BrokerBody broker(long value) {
            set("broker", value);
            return this;
        }
    }

    /** A broker whose requests to ZooKeeper wait this long; 0 ends that. */
    public static final class ZooKeeperDelayBody extends Body {
        public ZooKeeperDelayBody broker(long value) {
            set("broker", value);
            return this;
        }
        public ZooKeeperDelayBody ms(long value) {
            set("ms", value);
            return this;
        }
    }

    /** Which leaders that wait in recovery (KIP-704) go on: all, those of a topic, or that of one partition. */
    public static final class RecoveryBody extends Body {
        public RecoveryBody topic(String value) {
            set("topic", value);
            return this;
        }
        public RecoveryBody partition(long value) {
            set("partition", value);
            return this;
        }
    }

    /** The level of a finalized feature. */
    public static final class FeatureBody extends Body {
        public FeatureBody level(long value) {
            set("level", value);
            return this;
        }
    }

    /** The cluster id that clients see; without it the real one. */
    public static final class ClusterIdBody extends Body {
        public ClusterIdBody id(String value) {
            set("id", value);
            return this;
        }
    }

    /** What happens to requests from one broker to another: nothing arrives (`cut`), or it arrives late. */
    public static final class LinkBody extends Body {
        public LinkBody fromBroker(long value) {
            set("from_broker", value);
            return this;
        }
        public LinkBody toBroker(long value) {
            set("to_broker", value);
            return this;
        }
        public LinkBody cut(boolean value) {
            set("cut", value);
            return this;
        }
        public LinkBody delayMs(long value) {
            set("delay_ms", value);
            return this;
        }
        public LinkBody both(boolean value) {
            set("both", value);
            return this;
        }
    }

    /** A time in milliseconds. With `step_ms` it passes in steps; between them all that are alive are heard (`control/heartbeats.py`). */
    public static final class AdvanceBody extends Body {
        public AdvanceBody ms(long value) {
            set("ms", value);
            return this;
        }
        public AdvanceBody stepMs(long value) {
            set("step_ms", value);
            return this;
        }
    }

    /** The optional parameters of getHold. */
    public static final class GetHoldQuery extends Body {
        public GetHoldQuery wait(String value) {
            set("wait", value);
            return this;
        }
        public GetHoldQuery timeoutMs(long value) {
            set("timeout_ms", value);
            return this;
        }
    }

    /** The optional parameters of getFault. */
    public static final class GetFaultQuery extends Body {
        public GetFaultQuery hits(long value) {
            set("hits", value);
            return this;
        }
        public GetFaultQuery timeoutMs(long value) {
            set("timeout_ms", value);
            return this;
        }
    }

    /** The optional parameters of getRequests. */
    public static final class GetRequestsQuery extends Body {
        public GetRequestsQuery api(String value) {
            set("api", value);
            return this;
        }
        public GetRequestsQuery clientId(String value) {
            set("client_id", value);
            return this;
        }
        public GetRequestsQuery topic(String value) {
            set("topic", value);
            return this;
        }
        public GetRequestsQuery group(String value) {
            set("group", value);
            return this;
        }
        public GetRequestsQuery broker(long value) {
            set("broker", value);
            return this;
        }
        public GetRequestsQuery error(String value) {
            set("error", value);
            return this;
        }
        public GetRequestsQuery clients(boolean value) {
            set("clients", value);
            return this;
        }
        public GetRequestsQuery after(long value) {
            set("after", value);
            return this;
        }
        public GetRequestsQuery limit(long value) {
            set("limit", value);
            return this;
        }
    }

    /** The optional parameters of getTopics. */
    public static final class GetTopicsQuery extends Body {
        public GetTopicsQuery states(boolean value) {
            set("states", value);
            return this;
        }
    }

    /** The optional parameters of waitForConfigs. */
    public static final class WaitForConfigsQuery extends Body {
        public WaitForConfigsQuery timeoutMs(long value) {
            set("timeout_ms", value);
            return this;
        }
    }
}
