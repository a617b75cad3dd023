/** An adapter of Apache Kafka's clients for `klamm conform --client`. */
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

class Adapter {
    static final Map<String, String> env = System.getenv();
    static int number(String name) { return Integer.parseInt(env.get(name)); }
    static void tell(int partition, long offset, String value) { System.out.println("{\"partition\": " + partition + ", \"offset\": " + offset + ", \"value\": \"" + value + "\"}"); }
    static void produce(Producer<String, String> producer, int first) throws Exception {
        for (int i = first; i < first + number("RECORDS"); i++) {
            StringBuilder value = new StringBuilder("" + i);
            while (value.length() < number("SIZE")) value.append('.');
            var sent = producer.send(new ProducerRecord<>(env.get("TOPIC"), number("PARTITION"), null, value.toString()), (at, error) -> { if (error == null) tell(at.partition(), at.offset(), value.toString()); else { System.err.println(error); failed = true; } });
            if (i == first) sent.get(); else Thread.sleep(number("PAUSE_MS"));
        }
        producer.flush();
    }
}
