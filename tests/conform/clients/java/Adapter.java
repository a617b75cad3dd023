/** An adapter of Apache Kafka's clients for `klamm conform --client`. */
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.RebalanceInProgressException;
class Adapter {
    static boolean failed;
    static void produce(Producer<String, String> producer, int number) throws Exception {
        for (String value : Task.values(number)) {
            var sent = producer.send(new ProducerRecord<>(Task.topic, Task.place.partition(), null, value), (at, error) -> {
                if (error == null) Task.tell(at.partition(), at.offset(), value); else { failed = true; System.err.println(error); }
            });
            if (value.equals(Task.values(number).get(0))) sent.get(); else Thread.sleep(Task.number("PAUSE_MS"));
        }
        producer.flush();
    }
    static void transact(Producer<String, String> producer) throws Exception {
        producer.initTransactions();
        for (int number = 0; number < Task.number("TRANSACTIONS"); number++) {
            producer.beginTransaction();
            produce(producer, number);
            if (Task.env.get("END").equals("commit")) producer.commitTransaction(); else producer.abortTransaction();
        }
    }
    static void consume(Consumer<String, String> consumer, boolean isMember) {
        if (isMember) consumer.subscribe(List.of(Task.topic)); else consumer.assign(List.of(Task.place));
        if (!isMember) consumer.seek(Task.place, Task.number("OFFSET"));
        for (boolean ended = false; !ended;) {
            var read = consumer.poll(Duration.ofMillis(100));
            for (var each : read) ended |= Task.tell(each.partition(), each.offset(), each.value());
            try { if (!read.isEmpty() && isMember) consumer.commitSync(); } catch (CommitFailedException | RebalanceInProgressException again) { }
        }
        consumer.close();
    }
    public static void main(String[] none) throws Exception {
        switch (Task.name) {
            case "produce" -> produce(new KafkaProducer<>(Task.config()), 0);
            case "transaction" -> transact(new KafkaProducer<>(Task.config()));
            case "consume", "group" -> consume(new KafkaConsumer<>(Task.config()), Task.name.equals("group"));
            default -> Administration.call();
        }
        System.exit(failed ? 1 : 0);
    }
}
