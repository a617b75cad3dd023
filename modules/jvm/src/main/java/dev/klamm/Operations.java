// Made by `python -m klamm.distributions.modules` from the table of verbs; do not edit.
package dev.klamm;

import com.fasterxml.jackson.databind.JsonNode;
import dev.klamm.Bodies.*;
import java.util.Set;

/** One method for each operation of the control API. Each throws ControlFailed. */
public abstract class Operations {
    /** Send a request; `query` and `body` may be null. */
    protected abstract JsonNode send(String method, String path, Body query, Body body);

    /** A name as it stands in a path. */
    protected abstract String escaped(String name);

    /** Errors that every client meets, and goes on. */
    static final Set<String> USUAL_ERRORS = Set.of("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "FETCH_SESSION_ID_NOT_FOUND", "LEADER_NOT_AVAILABLE", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "UNSUPPORTED_VERSION");

    /** List all phases, with their fields. */
    public JsonNode getPhases() {
        return send("GET", "/phases", null, null);
    }

    /** List all holds. */
    public JsonNode getHolds() {
        return send("GET", "/holds", null, null);
    }

    /** Hold phases from now on. */
    public JsonNode addHold(HoldBody body) {
        return send("POST", "/holds", null, body);
    }

    /** End all holds. */
    public JsonNode deleteHolds() {
        return send("DELETE", "/holds", null, null);
    }

    /** A hold; wait=reached waits until it holds something. */
    public JsonNode getHold(long number, GetHoldQuery query) {
        return send("GET", "/holds/" + number, query, null);
    }

    /** End a hold. */
    public JsonNode deleteHold(long number) {
        return send("DELETE", "/holds/" + number, null, null);
    }

    /** End a hold; what it holds goes on. */
    public JsonNode releaseHold(long number) {
        return send("POST", "/holds/" + number + "/release", null, null);
    }

    /** Let the first that is held go on. */
    public JsonNode stepHold(long number) {
        return send("POST", "/holds/" + number + "/step", null, null);
    }

    /** Let the first that is held fail. */
    public JsonNode failHold(long number, FailBody body) {
        return send("POST", "/holds/" + number + "/fail", null, body);
    }

    /** Kill the broker that is held first. */
    public JsonNode crashHold(long number) {
        return send("POST", "/holds/" + number + "/crash", null, null);
    }

    /** List all faults. */
    public JsonNode getFaults() {
        return send("GET", "/faults", null, null);
    }

    /** Add a fault. */
    public JsonNode addFault(FaultBody body) {
        return send("POST", "/faults", null, body);
    }

    /** Remove all faults. */
    public JsonNode deleteFaults() {
        return send("DELETE", "/faults", null, null);
    }

    /** A fault; hits=N waits until it has this number. */
    public JsonNode getFault(long number, GetFaultQuery query) {
        return send("GET", "/faults/" + number, query, null);
    }

    /** Remove a fault. */
    public JsonNode deleteFault(long number) {
        return send("DELETE", "/faults/" + number, null, null);
    }

    /** The last requests and their responses, decoded, oldest first. */
    public JsonNode getRequests(GetRequestsQuery query) {
        return send("GET", "/requests", query, null);
    }

    /** List all brokers. */
    public JsonNode getBrokers() {
        return send("GET", "/brokers", null, null);
    }

    /** Start one more broker. */
    public JsonNode addBroker(NewBrokerBody body) {
        return send("POST", "/brokers", null, body);
    }

    /** A broker. */
    public JsonNode getBroker(long broker) {
        return send("GET", "/brokers/" + broker, null, null);
    }

    /** Stop a broker with a controlled shutdown. */
    public JsonNode stopBroker(long broker, StopBody body) {
        return send("POST", "/brokers/" + broker + "/stop", null, body);
    }

    /** End a broker as kill -9 does. */
    public JsonNode killBroker(long broker, KillBody body) {
        return send("POST", "/brokers/" + broker + "/kill", null, body);
    }

    /** Start a broker that does not run. */
    public JsonNode startBroker(long broker) {
        return send("POST", "/brokers/" + broker + "/start", null, null);
    }

    /** Stop a broker and start it again. */
    public JsonNode restartBroker(long broker, StopBody body) {
        return send("POST", "/brokers/" + broker + "/restart", null, body);
    }

    /** Freeze a broker, as SIGSTOP does. */
    public JsonNode pauseBroker(long broker) {
        return send("POST", "/brokers/" + broker + "/pause", null, null);
    }

    /** Let a frozen broker go on. */
    public JsonNode resumeBroker(long broker) {
        return send("POST", "/brokers/" + broker + "/resume", null, null);
    }

    /** The active controller. */
    public JsonNode getController() {
        return send("GET", "/controller", null, null);
    }

    /** Make a broker the controller. */
    public JsonNode moveController(MoveBody body) {
        return send("POST", "/controller/move", null, body);
    }

    /** Let another broker become controller. */
    public JsonNode resignController() {
        return send("POST", "/controller/resign", null, null);
    }

    /** List all topics; states=true adds leader, ISR and replicas of each partition. */
    public JsonNode getTopics(GetTopicsQuery query) {
        return send("GET", "/topics", query, null);
    }

    /** Create a topic. */
    public JsonNode createTopic(TopicBody body) {
        return send("POST", "/topics", null, body);
    }

    /** Delete a topic. */
    public JsonNode deleteTopic(String name) {
        return send("DELETE", "/topics/" + escaped(name), null, null);
    }

    /** A topic as ZooKeeper and each broker see it. */
    public JsonNode getTopic(String name) {
        return send("GET", "/topics/" + escaped(name), null, null);
    }

    /** Let a topic have more partitions. */
    public JsonNode addPartitions(String name, PartitionsBody body) {
        return send("POST", "/topics/" + escaped(name) + "/partitions", null, body);
    }

    /** List all groups. */
    public JsonNode getGroups() {
        return send("GET", "/groups", null, null);
    }

    /** A group. */
    public JsonNode getGroup(String name) {
        return send("GET", "/groups/" + escaped(name), null, null);
    }

    /** End the session of one member of a group, or of all. */
    public JsonNode expireMembers(String name, MemberBody body) {
        return send("POST", "/groups/" + escaped(name) + "/expire", null, body);
    }

    /** Let a group rebalance. */
    public JsonNode rebalanceGroup(String name) {
        return send("POST", "/groups/" + escaped(name) + "/rebalance", null, null);
    }

    /** List all transactional ids. */
    public JsonNode getTransactions() {
        return send("GET", "/transactions", null, null);
    }

    /** A transactional id. */
    public JsonNode getTransaction(String name) {
        return send("GET", "/transactions/" + escaped(name), null, null);
    }

    /** Let the open transaction of an id time out: it is aborted. */
    public JsonNode expireTransaction(String name) {
        return send("POST", "/transactions/" + escaped(name) + "/expire", null, null);
    }

    /** End the ZooKeeper session of a broker. */
    public JsonNode expireSession(BrokerBody body) {
        return send("POST", "/zookeeper/expire", null, body);
    }

    /** Let a broker lose its connection to ZooKeeper until it is restored. */
    public JsonNode cutZooKeeper(BrokerBody body) {
        return send("POST", "/zookeeper/cut", null, body);
    }

    /** Let a broker connect to ZooKeeper again. */
    public JsonNode restoreZooKeeper(BrokerBody body) {
        return send("POST", "/zookeeper/restore", null, body);
    }

    /** Let requests of a broker to ZooKeeper wait. */
    public JsonNode delayZooKeeper(ZooKeeperDelayBody body) {
        return send("POST", "/zookeeper/delay", null, body);
    }

    /** List leaders that wait to be released from recovery (KIP-704). */
    public JsonNode getRecovering() {
        return send("GET", "/recovering", null, null);
    }

    /** Release leaders that wait in recovery: all, of a topic, or of a partition. */
    public JsonNode releaseRecovery(RecoveryBody body) {
        return send("POST", "/recovering/release", null, body);
    }

    /** The finalized features, as each broker shows them. */
    public JsonNode getFeatures() {
        return send("GET", "/features", null, null);
    }

    /** Set the level of a feature while clients run; 0 removes it. */
    public JsonNode setFeature(String name, FeatureBody body) {
        return send("POST", "/features/" + escaped(name), null, body);
    }

    /** Let the brokers show another cluster id to clients, or the real one again. */
    public JsonNode showClusterId(ClusterIdBody body) {
        return send("POST", "/cluster-id", null, body);
    }

    /** Wait until all brokers have processed the last changes of configs, users, quotas and ACLs. */
    public JsonNode waitForConfigs(WaitForConfigsQuery query) {
        return send("GET", "/configs/processed", query, null);
    }

    /** Cut or slow what brokers send each other, as faults. */
    public JsonNode addLink(LinkBody body) {
        return send("POST", "/links", null, body);
    }

    /** The time of the brokers. */
    public JsonNode getClock() {
        return send("GET", "/clock", null, null);
    }

    /** Advance the clock at once, or in steps with heartbeats between them. */
    public JsonNode advanceClock(AdvanceBody body) {
        return send("POST", "/clock/advance", null, body);
    }

    /** Let time pass only by advance. */
    public JsonNode freezeClock() {
        return send("POST", "/clock/freeze", null, null);
    }

    /** Let real time pass again. */
    public JsonNode resumeClock() {
        return send("POST", "/clock/resume", null, null);
    }

    /** Undo faults, holds, stops, and changes of configs of brokers, users, quotas and ACLs; wait until all is whole. */
    public JsonNode reset() {
        return send("POST", "/reset", null, null);
    }
}
