package dev.klamm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.klamm.Bodies.*;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class SmallestTest {
    static final Duration SOON = Duration.ofSeconds(10);

    @RegisterExtension
    static final KlammExtension klamm = KlammExtension.of(Klamm.cluster().topic("faults:1").topic("deaths:1:3"));

    @Test
    void aProducerSendsAgainAfterAnError(Klamm cluster) throws Exception {
        var fault = cluster.fault(new FilterBody().api("Produce").topic("faults"), new EffectBody().error("NOT_LEADER_OR_FOLLOWER"), 1);
        send(cluster, "faults");
        assertEquals(1, fault.hits());
    }

    @Test
    void aTopicIsCreatedWhenTheControllerGoesOn(Klamm cluster) throws Exception {
        var hold = cluster.hold(new HoldBody().phase("ZooKeeperWrite").where(Map.of("paths", "/brokers/topics/held")));
        try (var admin = Admin.create(Map.of("bootstrap.servers", cluster.bootstrapServers()))) {
            var created = admin.createTopics(List.of(new NewTopic("held", 1, (short) 1))).all();
            hold.reached(SOON);
            hold.release();
            created.get();
        }
    }

    @Test
    void aProducerFindsTheNextLeaderWhenTheFirstOneIsDead(Klamm cluster) throws Exception {
        cluster.control().killBroker(cluster.waitForLeader("deaths", 0, null, SOON), new KillBody().expire(true));
        send(cluster, "deaths");
    }

    static void send(Cluster cluster, String topic) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", cluster.bootstrapServers());
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "a record")).get();
        }
    }
}
