import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's clients for reactions.py: each line of standard input is `producer|consumer SERVERS CLIENT_ID`. A new client does its work;
 * the response is a line with the outcome: `done`, `waits`, or the name of an exception.
 */
public class Reactions {
    static final int LIMIT_MS = 12_000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            System.out.println(words[0].equals("producer") ? produce(words[1], words[2]) : consume(words[1], words[2]));
        }
        System.exit(0);
    }

    static String produce(String servers, String name) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", servers, "client.id", name, "request.timeout.ms", 1500, "max.block.ms", LIMIT_MS, "linger.ms", 0,
            "delivery.timeout.ms", LIMIT_MS);
        KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        try {
            producer.send(new ProducerRecord<>("t", "v")).get(LIMIT_MS, TimeUnit.MILLISECONDS);
            return "done";
        } catch (TimeoutException late) {
            return "waits";
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        } finally {
            producer.close(Duration.ofMillis(100));
        }
    }

    static String consume(String servers, String name) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", servers, "client.id", name, "group.id", name, "auto.offset.reset", "earliest", "enable.auto.commit", false,
            "request.timeout.ms", 1500, "default.api.timeout.ms", LIMIT_MS, "session.timeout.ms", 10_000);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        try {
            consumer.subscribe(List.of("t"));
            long until = System.nanoTime() + LIMIT_MS * 1_000_000L;
            while (System.nanoTime() < until) {
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                    consumer.commitSync();
                    return "done";
                }
            }
            return "waits";
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        } finally {
            consumer.close(Duration.ofMillis(100));
        }
    }
}
