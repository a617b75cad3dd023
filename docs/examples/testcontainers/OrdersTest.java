import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/** A cluster of Klamm in a container. Its clients must know their port before it starts, so a free one is chosen here. */
class OrdersTest {
    @Test
    void aRecordIsRead() throws IOException {
        int port = freePort();
        try (GenericContainer<?> klamm = new GenericContainer<>("klamm-serve")) {
            klamm.withEnv("KLAMM_ADVERTISED", "localhost:" + port);
            klamm.withCommand("serve", "--brokers", "1", "--topic", "orders:1:1");
            klamm.setPortBindings(List.of(port + ":9092"));
            klamm.waitingFor(Wait.forLogMessage("localhost:" + port + "\\n", 1));
            klamm.start();
            String servers = "localhost:" + port;
            try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", servers), new StringSerializer(), new StringSerializer())) {
                producer.send(new ProducerRecord<>("orders", "record"));
            }
            Map<String, Object> config = Map.of("bootstrap.servers", servers, "group.id", "billing", "auto.offset.reset", "earliest");
            try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("orders"));
                var records = consumer.poll(Duration.ofSeconds(30));
                assertEquals("record", records.iterator().next().value());
            }
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }
}
