/** An adapter of Apache Kafka's clients for `klamm conform --client`. */
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
class Adapter {
    static final Map<String, String> env = System.getenv();
    static final String task = env.get("TESTCASE"), topic = env.get("TOPIC"), strings = "org.apache.kafka.common.serialization.String";
    static final TopicPartition place = new TopicPartition(topic, Integer.parseInt(env.get("PARTITION")));
    static boolean failed;
    static void tell(int partition, long offset, String value) {
        System.out.printf("{\"partition\": %d, \"offset\": %d, \"value\": \"%s\"}%n", partition, offset, value);
    }
    static void produce(KafkaProducer<String, String> producer, int first) throws Exception {
        for (int i = first; i < first + Integer.parseInt(env.get("RECORDS")); i++) {
            String value = i + ".".repeat(Math.max(0, Integer.parseInt(env.get("SIZE")) - ("" + i).length()));
            var sent = producer.send(new ProducerRecord<>(topic, place.partition(), null, value), (at, error) -> {
                if (error == null) tell(at.partition(), at.offset(), value); else { failed = true; System.err.println(error); }
            });
            if (i == first) sent.get(); else Thread.sleep(Long.parseLong(env.get("PAUSE_MS")));
        }
        producer.flush();
    }
    static void transactions(KafkaProducer<String, String> producer) throws Exception {
        producer.initTransactions();
        for (int i = 0; i < Integer.parseInt(env.get("TRANSACTIONS")); i++) {
            producer.beginTransaction();
            produce(producer, i * Integer.parseInt(env.get("RECORDS")));
            if (env.get("END").equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
        }
    }
    static void consume(KafkaConsumer<String, String> consumer, boolean isGroup) {
        if (isGroup) consumer.subscribe(List.of(topic)); else { consumer.assign(List.of(place)); consumer.seek(place, Long.parseLong(env.get("OFFSET"))); }
        for (boolean ended = false; !ended;) {
            var read = consumer.poll(Duration.ofMillis(100));
            for (var each : read) { tell(each.partition(), each.offset(), each.value()); ended |= each.value().equals("end"); }
            if (!read.isEmpty() && isGroup)
                try { consumer.commitSync(); } catch (CommitFailedException rebalance) { }  // the next poll joins the group again
        }
        consumer.close();
    }
    public static void main(String[] none) throws Exception {
        var config = new Properties();
        config.load(new java.io.StringReader(env.get("CONFIG") + "\nbootstrap.servers=" + env.get("BOOTSTRAP") + "\ngroup.id=" + env.get("GROUP")));
        for (String side : List.of("key.", "value.")) { config.put(side + "serializer", strings + "Serializer"); config.put(side + "deserializer", strings + "Deserializer"); }
        config.computeIfPresent("partition.assignment.strategy", (name, it) -> "org.apache.kafka.clients.consumer." + (it.equals("range") ? "Range" : "CooperativeSticky") + "Assignor");
        switch (task) {
            case "produce" -> produce(new KafkaProducer<>(config), 0);
            case "transaction" -> transactions(new KafkaProducer<>(config));
            case "consume", "group" -> consume(new KafkaConsumer<>(config), task.equals("group"));
            default -> Administration.main(config);
        }
        System.exit(failed ? 1 : 0);
    }
}
