package dev.klamm;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.stream.Collectors;

/** The control API at an address. It has a method for each route. */
public final class Control extends Operations {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    private final HttpClient client = HttpClient.newBuilder().connectTimeout(TIMEOUT).build();
    private final String url;
    private final String token;

    /** {@code token} is null if requests bear none. */
    public Control(String url, String token) {
        this.url = url.replaceAll("/+$", "");
        this.token = token;
    }

    /** The address. */
    public String url() {
        return url;
    }

    @Override
    protected JsonNode send(String method, String path, Body query, Body body) {
        String given = query == null ? "" : query.fields().entrySet().stream()
            .map(each -> each.getKey() + "=" + escaped(String.valueOf(each.getValue()))).collect(Collectors.joining("&"));
        Object wait = query == null ? null : query.fields().get("timeout_ms");
        try {
            var request = HttpRequest.newBuilder(URI.create(url + path + (given.isEmpty() ? "" : "?" + given)))
                .timeout(TIMEOUT.plusMillis(wait instanceof Long waited ? waited : 0)).header("Content-Type", "application/json")
                .method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body)));
            if (token != null) {
                request.header("Authorization", "Bearer " + token);
            }
            return valueOf(client.send(request.build(), BodyHandlers.ofByteArray()));
        } catch (IOException failure) {
            throw new ControlFailed("cannot reach the control API at " + url + ": " + failure);
        } catch (InterruptedException interrupted) {
            throw ControlFailed.interrupted("a request of the control API");
        }
    }

    private JsonNode valueOf(HttpResponse<byte[]> response) throws IOException {
        JsonNode value;
        try {
            value = JSON.readTree(response.body());
        } catch (JsonProcessingException noJson) {
            throw new ControlFailed(url + " is not a control API of Klamm: HTTP status " + response.statusCode());
        }
        if (response.statusCode() >= 400) {
            throw new ControlFailed(value.path("error").asText("HTTP status " + response.statusCode()));
        }
        return value;
    }

    @Override
    protected String escaped(String name) {
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
