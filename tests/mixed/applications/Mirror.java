// What MirrorMaker 2 made of a topic: java -cp JARS Mirror.java SOURCE TARGET
// A topic with configs is written, read by a group, grows and gets another config on the source cluster; each is waited for on the target.

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Mirror {
    static final String TOPIC = "orders", COPY = "source.orders";

    public static void main(String[] arguments) throws Exception {
        String from = arguments[0], to = arguments[1];
        try (Admin source = Admin.create(Map.of("bootstrap.servers", from)); Admin target = Admin.create(Map.of("bootstrap.servers", to))) {
            NewTopic topic = new NewTopic(TOPIC, 3, (short) 2).configs(Map.of("retention.ms", "123456789", "max.message.bytes", "2000000"));
            source.createTopics(List.of(topic)).all().get();
            produce(from, 0, 300);
            read(from, TOPIC, "shop", 300);
            until("partitions", 3, () -> partitions(target));
            until("retention.ms", "123456789", () -> config(target, "retention.ms"));
            until("max.message.bytes", "2000000", () -> config(target, "max.message.bytes"));
            source.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(4))).all().get();
            until("partitions", 4, () -> partitions(target));
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "987654321"), AlterConfigOp.OpType.SET);
            source.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, TOPIC), List.of(change))).all().get();
            until("retention.ms", "987654321", () -> config(target, "retention.ms"));
            produce(from, 300, 600);
            System.out.println("* records " + read(to, COPY, null, 600));
            until("committed", "[source.orders-0, source.orders-1, source.orders-2]", () ->
                new TreeSet<>(target.listConsumerGroupOffsets("shop").partitionsToOffsetAndMetadata().get().keySet().stream()
                    .map(TopicPartition::toString).toList()).toString());
        }
        System.exit(0);
    }

    /** Wait until the value is there; it is printed. What fails is tried again. */
    static void until(String what, Object wanted, Callable<Object> look) throws Exception {
        for (Object seen = null; !wanted.equals(seen); Thread.sleep(100)) {
            try {
                seen = look.call();
            } catch (java.util.concurrent.ExecutionException notYet) {
                System.err.println(notYet.getMessage());
            }
        }
        System.out.println("* " + what + " " + wanted);
    }

    static Object partitions(Admin admin) throws Exception {
        return admin.describeTopics(List.of(COPY)).allTopicNames().get().get(COPY).partitions().size();
    }

    static Object config(Admin admin, String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, COPY);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
    }

    static void produce(String bootstrap, int from, int to) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) producer.send(new ProducerRecord<>(TOPIC, number % 3, null, "order " + number));
        }
    }

    /** Read until this many different values have been seen; returns how many records had them. With a group, its offsets are committed. */
    static String read(String bootstrap, String topic, String group, int wanted) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        if (group != null) settings.put("group.id", group);
        Set<String> values = new HashSet<>();
        int count = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            if (group != null) consumer.subscribe(List.of(topic));
            else consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2)));
            while (values.size() < wanted)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    count++;
                    values.add(record.value());
                }
            if (group != null) consumer.commitSync();
        }
        return values.size() + " in " + count;
    }
}
