// A producer of kafka-clients sends again after NOT_LEADER_OR_FOLLOWER. Run it with the jars of kafka-clients:
//   java -cp 'libs/*' ControlExample.java
// In a project the three parts of main are setup, test and teardown of a test.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class ControlExample {
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        Process klamm = new ProcessBuilder("klamm", "serve", "--port", "0", "--json", "--stop-with-stdin", "--control-port", "0",
            "--topic", "orders:1")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            String cluster = new BufferedReader(new InputStreamReader(klamm.getInputStream())).readLine();
            producerSendsAgain(field(cluster, "bootstrap_servers"), field(cluster, "control"));
            System.out.println("passed");
        } finally {
            klamm.destroy();
            klamm.waitFor();
        }
    }

    private static void producerSendsAgain(String bootstrapServers, String control) throws Exception {
        String fault = post(control + "/faults", "{\"filter\": {\"api\": \"Produce\", \"client_id\": \"shop\", \"topic\": \"orders\"},"
            + " \"effect\": {\"error\": \"NOT_LEADER_OR_FOLLOWER\"}, \"first\": 1}");
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrapServers, "client.id", "shop");
        try (var producer = new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            check(producer.send(new ProducerRecord<>("orders", "a record")).get().offset() == 0, "the record has offset 0");
        }
        String hit = get(control + "/faults/" + field(fault, "id") + "?hits=1");
        check(field(hit, "hits").equals("1"), "the fault was hit once: " + hit);
        String requests = get(control + "/requests?api=Produce&client_id=shop");
        check(requests.split("\"number\"", -1).length - 1 == 2, "the client sent twice: " + requests);
    }

    private static String get(String url) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(url)).build());
    }

    private static String post(String url, String body) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(url)).POST(HttpRequest.BodyPublishers.ofString(body)).build());
    }

    private static String send(HttpRequest request) throws Exception {
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        check(response.statusCode() == 200, response.body());
        return response.body();
    }

    /** The first field with this name, a text or a number. A project has a library for JSON. */
    private static String field(String json, String name) {
        Matcher matcher = Pattern.compile("\"" + name + "\": \"?([^\",}]*(?:,\\d[^\"]*)?)").matcher(json);
        check(matcher.find(), name + " is in " + json);
        return matcher.group(1);
    }

    private static void check(boolean isRight, String text) {
        if (!isRight) {
            throw new AssertionError(text);
        }
    }
}
