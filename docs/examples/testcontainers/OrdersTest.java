import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.klamm.Bodies.EffectBody;
import dev.klamm.Bodies.FilterBody;
import dev.klamm.Bodies.HoldBody;
import dev.klamm.Cluster;
import dev.klamm.KlammContainer;
import dev.klamm.KlammExtension;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A cluster of Klamm in a container, with Testcontainers. It needs the module modules/jvm. */
class OrdersTest {
    @RegisterExtension
    static final KlammExtension klamm = KlammExtension.of(OrdersTest::start);

    private static Cluster start() {
        var container = new KlammContainer("klamm-serve").withTopic("orders:1:3");
        container.start(); // Testcontainers removes it when the tests have ended
        return container.cluster();
    }

    @Test
    void aProducerSendsAgainAfterAnError(Cluster cluster) throws Exception {
        var fault = cluster.fault(new FilterBody().api("Produce"), new EffectBody().error("NOT_LEADER_OR_FOLLOWER"), 1);
        Map<String, Object> config = Map.of("bootstrap.servers", cluster.bootstrapServers());
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "a book")).get();
        }
        assertEquals(1, fault.hits());
    }

    @Test
    void aTopicIsCreatedWhenTheControllerGoesOn(Cluster cluster) throws Exception {
        var hold = cluster.hold(new HoldBody().phase("ZooKeeperWrite").where(Map.of("paths", "/brokers/topics/bills")));
        try (var admin = Admin.create(Map.of("bootstrap.servers", cluster.bootstrapServers()))) {
            var created = admin.createTopics(List.of(new NewTopic("bills", 1, (short) 3))).all();
            hold.reached(Duration.ofSeconds(10));
            hold.release();
            created.get();
        }
    }
}
