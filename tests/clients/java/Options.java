import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.ArrayList;
import java.util.Set;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The arguments of a program: words in order, "--name value", and "--name" alone for a flag. */
final class Options {
    private final List<String> words = new ArrayList<>();
    private final Map<String, String> values = new HashMap<>();
    private final Set<String> flags = new HashSet<>();

    Options(String[] arguments, String... flagNames) {
        Set<String> known = Set.of(flagNames);
        for (int at = 0; at < arguments.length; at++) {
            if (!arguments[at].startsWith("--")) {
                words.add(arguments[at]);
            } else if (known.contains(arguments[at].substring(2))) {
                flags.add(arguments[at].substring(2));
            } else if (at + 1 == arguments.length) {
                throw new IllegalArgumentException(arguments[at] + " needs a value after a blank");
            } else {
                values.put(arguments[at].substring(2), arguments[++at]);
            }
        }
    }

    String word(int at) {
        return words.get(at);
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(values.getOrDefault(name, Integer.toString(otherwise)));
    }

    /** A duration that is given in seconds. */
    long millis(String name, double otherwiseSeconds) {
        String text = values.get(name);
        return Math.round(1000 * (text == null ? otherwiseSeconds : Double.parseDouble(text)));
    }

    boolean flag(String name) {
        return flags.contains(name);
    }

    /** What signs requests by --credentials; null without them. */
    RPCHook signing() {
        return signing(values.get("credentials"));
    }

    /** What signs requests by "USER:SECRET", or null for null. */
    static RPCHook signing(String credentials) {
        if (credentials == null) {
            return null;
        }
        String[] both = credentials.split(":", 2);
        return new AclClientRPCHook(new SessionCredentials(both[0], both[1]));
    }

    /** Make the client write its logs and broadcast offsets below HOME. Call this before any of its classes is used. */
    static void useHomeOfEnvironment() {
        System.setProperty("user.home", System.getenv("HOME"));
    }

    /** Print a line, all of it at once. */
    static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
