package dev.klamm;

import com.fasterxml.jackson.annotation.JsonValue;
import java.util.LinkedHashMap;
import java.util.Map;

/** The fields of a JSON object that are set. */
public abstract class Body {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    void set(String name, Object value) {
        fields.put(name, value);
    }

    @JsonValue
    Map<String, Object> fields() {
        return fields;
    }
}
