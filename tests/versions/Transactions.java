// Transactions with the clients of any Kafka since 0.11: java -cp JARS Transactions.java BOOTSTRAP TOPIC GROUP
// Commits one, aborts one, commits offsets in one, and fences a producer. Prints what a reader of committed records, and one of all, has.

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class Main {
    static String bootstrap, topic, group;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        KafkaProducer<String, String> first = producer();
        first.beginTransaction();
        for (int number = 0; number < 3; number++) first.send(record("committed " + number));
        first.commitTransaction();
        first.beginTransaction();
        first.send(record("aborted")).get();
        first.abortTransaction();
        first.beginTransaction();
        first.send(record("with offsets"));
        sendOffsets(first, Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(7)));
        first.commitTransaction();
        KafkaProducer<String, String> second = producer();
        System.out.println(fenced(first));
        first.close();
        second.beginTransaction();
        second.send(record("of the second"));
        second.commitTransaction();
        second.close();
        System.out.println("committed: " + read("read_committed"));
        System.out.println("all: " + read("read_uncommitted"));
    }

    static ProducerRecord<String, String> record(String text) {
        return new ProducerRecord<String, String>(topic, 0, null, text);
    }

    static KafkaProducer<String, String> producer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", group);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    /** What a producer gets whose transactional id has another one. */
    static String fenced(KafkaProducer<String, String> producer) throws Exception {
        try {
            producer.beginTransaction();
            producer.send(record("fenced"));
            producer.commitTransaction();
            return "not fenced";
        } catch (Exception problem) {
            Throwable reason = problem;
            while (reason.getCause() != null) reason = reason.getCause();
            return reason.getClass().getSimpleName();
        }
    }

    /** The group is named by a text before 4.0, and by metadata since 2.5. */
    static void sendOffsets(KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception {
        try {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            Method method = KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata);
            method.invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
        } catch (ReflectiveOperationException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }

    static List<String> read(String isolation) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", isolation);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singletonList(partition));
            long end = consumer.endOffsets(Collections.singletonList(partition)).get(partition);
            consumer.seekToBeginning(Collections.singletonList(partition));
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> record : poll(consumer)) values.add(record.value());
            }
        }
        return values;
    }

    /** The argument of `poll` is a number before 2.0, and a Duration from 4.0 on. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
        try {
            Method method = KafkaConsumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<String, String>) method.invoke(consumer, Duration.ofMillis(100));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        }
    }
}
