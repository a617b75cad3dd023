package dev.klamm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.klamm.Bodies.EffectBody;
import dev.klamm.Bodies.FilterBody;
import dev.klamm.Bodies.GetRequestsQuery;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** A cluster in a container. KLAMM_IMAGE names the image; without it there is nothing to test. */
@EnabledIfEnvironmentVariable(named = "KLAMM_IMAGE", matches = ".+")
class KlammContainerTest {
    @Test
    void aFaultReachesABrokerInAContainerAtAPortThatWasFree() throws Exception {
        try (var container = new KlammContainer(System.getenv("KLAMM_IMAGE")).withTopic("orders:1:3").withJournal()) {
            container.start();
            Cluster cluster = container.cluster();
            var fault = cluster.fault(new FilterBody().api("Produce"), new EffectBody().error("NOT_LEADER_OR_FOLLOWER"), 1);
            Map<String, Object> config = Map.of("bootstrap.servers", container.bootstrapServers(), "client.id", "shop");
            try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
                assertEquals(0, producer.send(new ProducerRecord<>("orders", "a record")).get().offset());
            }
            fault.waitForHits(1, Duration.ofSeconds(10));
            var requests = cluster.requests(new GetRequestsQuery().api("Produce").clientId("shop"));
            assertEquals(List.of("NOT_LEADER_OR_FOLLOWER", "null"), requests.stream().map(each -> each.path("error").asText()).toList());
            var verdict = container.verdict();
            assertTrue(verdict.isObeyed(), verdict.details().toString());
        }
    }
}
