// Two consumers of one group, with the clients of any Kafka since 0.10.2: java -cp JARS Group.java BOOTSTRAP TOPIC GROUP
// The topic has four partitions. One line for each step: how many partitions each consumer has, how many records both have read.

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class Main {
    static final int PARTITIONS = 4;
    static final Set<String> READ = ConcurrentHashMap.newKeySet();
    static final AtomicInteger COUNT = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        Member first = new Member(bootstrap, topic, group), second = new Member(bootstrap, topic, group);
        first.start();
        second.start();
        until(() -> first.owned == PARTITIONS / 2 && second.owned == PARTITIONS / 2);
        System.out.println("two members " + first.owned + " " + second.owned);
        produce(bootstrap, topic, 0, 60);
        until(() -> READ.size() == 60);
        System.out.println("read " + COUNT);
        second.end();
        until(() -> first.owned == PARTITIONS);
        System.out.println("one member " + first.owned);
        produce(bootstrap, topic, 60, 100);
        until(() -> READ.size() == 100);
        System.out.println("read " + COUNT);
        first.end();
    }

    static void produce(String bootstrap, String topic, int from, int to) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("acks", "all");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        for (int number = from; number < to; number++) {
            producer.send(new ProducerRecord<String, String>(topic, number % PARTITIONS, null, "record " + number));
        }
        producer.flush();
        producer.close();
    }

    static void until(BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException("not within 60 s; read " + READ.size());
            Thread.sleep(5);
        }
    }
}

class Member extends Thread {
    private final KafkaConsumer<String, String> consumer;
    private final String topic;
    private volatile boolean over = false;
    volatile int owned = 0;

    Member(String bootstrap, String topic, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("heartbeat.interval.ms", "200");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        this.consumer = new KafkaConsumer<>(properties);
        this.topic = topic;
        setDaemon(true);
    }

    void end() throws InterruptedException {
        over = true;
        join();
    }

    @Override
    public void run() {
        consumer.subscribe(Arrays.asList(topic), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { owned = 0; }
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { owned = consumer.assignment().size(); }
        });
        while (!over) {
            ConsumerRecords<String, String> records = poll();
            for (ConsumerRecord<String, String> record : records) {
                Main.READ.add(record.value());
                Main.COUNT.incrementAndGet();
            }
            if (!records.isEmpty()) consumer.commitSync();
        }
        consumer.close();
    }

    /** The argument of `poll` is a number before 2.0, and a Duration from 4.0 on. */
    @SuppressWarnings("unchecked")
    private ConsumerRecords<String, String> poll() {
        try {
            try {
                Method method = KafkaConsumer.class.getMethod("poll", Duration.class);
                return (ConsumerRecords<String, String>) method.invoke(consumer, Duration.ofMillis(100));
            } catch (NoSuchMethodException old) {
                return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
            }
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
