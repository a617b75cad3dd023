package dev.klamm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.klamm.Bodies.EffectBody;
import dev.klamm.Bodies.FilterBody;
import dev.klamm.Bodies.GetRequestsQuery;
import dev.klamm.Bodies.HoldBody;
import dev.klamm.Bodies.MoveBody;
import java.net.ConnectException;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** What the module does, with Kafka's own clients. KLAMM names the program. */
class KlammTest {
    private static final Duration SOON = Duration.ofSeconds(10);

    @RegisterExtension
    static final KlammExtension klamm = KlammExtension.of(
        Klamm.cluster().topic("orders:1").topic("read:1").config("group.initial.rebalance.delay.ms", 0).journal());

    private static long produce(String client, String topic) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", klamm.cluster().bootstrapServers(), "client.id", client);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            return producer.send(new ProducerRecord<>(topic, "a record")).get().offset();
        }
    }

    @Test
    void aProducerSendsAgainAfterAnError(Klamm cluster) throws Exception {
        var fault = cluster.fault(
            new FilterBody().api("Produce").clientId("shop").topic("orders").partition(0), new EffectBody().error("NOT_LEADER_OR_FOLLOWER"), 1);
        produce("shop", "orders");
        fault.waitForHits(1, SOON);
        assertEquals(1, fault.hits());
        var requests = cluster.requests(new GetRequestsQuery().api("Produce").clientId("shop"));
        assertEquals(List.of("NOT_LEADER_OR_FOLLOWER", "null"), requests.stream().map(each -> each.path("error").asText()).toList());
        assertTrue(cluster.transcript(0).contains("\n> "), cluster.transcript(0));
    }

    @Test
    void aHoldIsReachedAndReleased(Klamm cluster) throws Exception {
        var hold = cluster.hold(new HoldBody().phase("ZooKeeperWrite").where(Map.of("paths", "/brokers/topics/held")).count(1L));
        try (var admin = Admin.create(Map.of("bootstrap.servers", cluster.bootstrapServers()))) {
            var created = admin.createTopics(List.of(new NewTopic("held", 1, (short) 3))).all();
            assertEquals(1, hold.reached(SOON).path("held").size());
            hold.release();
            created.get();
        }
        assertTrue(cluster.waitForLeader("held", 0, null, SOON) > 0);
    }

    @Test
    void aGroupBecomesStable(Klamm cluster) throws Exception {
        produce("writer", "read");
        Map<String, Object> config = Map.of("bootstrap.servers", cluster.bootstrapServers(), "group.id", "readers", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("read"));
            while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
                cluster.advance(Duration.ofMillis(1));
            }
            assertEquals("readers", cluster.waitForGroup("readers", "Stable", SOON).path("group").asText());
        }
    }

    @Test
    void aControllerIsFoundAgain(Klamm cluster) {
        cluster.control().moveController(new MoveBody().to(2));
        assertEquals(2, cluster.waitForController(2, SOON));
    }

    @Test
    void theRulesAreObeyed(Klamm cluster) {
        var verdict = cluster.verdict();
        assertTrue(verdict.isObeyed(), verdict.details().toString());
    }

    @Test
    void whatTheApiRefusesIsOneLine(Klamm cluster) {
        var unknown = new FilterBody().api("Produse");
        var refused = assertThrows(ControlFailed.class, () -> cluster.fault(unknown, new EffectBody().error("NOT_LEADER_OR_FOLLOWER")));
        assertTrue(refused.getMessage().contains("Produse"), refused.getMessage());
        var none = new GetRequestsQuery().clientId("nobody");
        assertThrows(ControlFailed.class, () -> cluster.waitForRequests(1, none, Duration.ofMillis(50)));
    }

    private static Cluster ofTheOuterClass;

    @BeforeAll
    static void remember() {
        ofTheOuterClass = klamm.cluster();
    }

    @Nested
    class Inner {
        @Test
        void aNestedClassUsesTheSameCluster(Cluster cluster) {
            assertSame(ofTheOuterClass, cluster);
        }
    }

    @Test
    void aProgramThatEndsWithoutAWordIsNamed() {
        var refused = assertThrows(ControlFailed.class, () -> Klamm.cluster().command("false").start());
        assertTrue(refused.getMessage().contains("false"), refused.getMessage());
    }

    @Test
    void whyAClusterCannotStartIsOneLine() {
        var refused = assertThrows(ControlFailed.class, () -> Klamm.cluster().topic("a b:1").start());
        assertTrue(refused.getMessage().contains("a b"), refused.getMessage());
        assertThrows(ControlFailed.class, () -> Klamm.cluster().command("/nothing/klamm").start());
    }

    /** A program that starts a cluster, for the test that kills it. */
    static final class Child {
        public static void main(String[] arguments) throws InterruptedException {
            System.out.println(Klamm.cluster().brokers(1).start().bootstrapServers());
            Thread.currentThread().join();
        }
    }

    @Test
    void aClusterEndsWithATestThatIsKilled() throws Exception {
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        var child = new ProcessBuilder("java", "-cp", classes, Child.class.getName()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String[] address = child.inputReader().readLine().split(":");
        child.destroyForcibly().waitFor();
        for (long until = System.nanoTime() + Duration.ofSeconds(30).toNanos();;) {
            try (var socket = new Socket(address[0], Integer.parseInt(address[1]))) {
                assertTrue(System.nanoTime() < until, "the cluster serves at " + socket.getRemoteSocketAddress());
            } catch (ConnectException gone) {
                return;
            }
        }
    }
}
