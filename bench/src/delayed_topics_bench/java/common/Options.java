import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The program's `name=value` arguments, and the lines that it exchanges with the Python program that started it. */
final class Options {
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));

    private final Map<String, String> values = new HashMap<>();

    /** From here on, an uncaught exception in any thread ends the program. */
    Options(String[] arguments) {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            if (at > 0) {
                values.put(argument.substring(0, at), argument.substring(at + 1));
            }
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(name + "=… is missing");
        }
        return value;
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? Long.parseLong(text(name)) : otherwise;
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    Path directory() {
        return Path.of(text("directory"));
    }

    static void say(String line) {
        System.out.println(line);
    }

    static void await(String line) throws IOException {
        String received = IN.readLine();
        if (!line.equals(received)) {
            throw new IOException("expected " + line + ", got " + received);
        }
    }
}
