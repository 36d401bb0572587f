import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of RocketMQ's own mqadmin, one after the other in one process; an answer is what one prints. Its
 * argument is the name server's address.
 */
public final class Mqadmin {
    private Mqadmin() {
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        new LineServer(words -> run(words, arguments[0]), 1).serve();
    }

    private static String run(List<String> words, String names) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        try (PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(stream);
            System.setErr(stream);
            forgetCommands();
            List<String> all = new ArrayList<>(words);
            all.addAll(List.of("-n", names));
            MQAdminStartup.main0(all.toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** Some commands keep a client that they have shut down; each start makes commands anew, behind the old ones. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (String name : List.of("subCommandList", "SUB_COMMANDS")) {
            try {
                Field list = MQAdminStartup.class.getDeclaredField(name);
                list.setAccessible(true);
                ((List<?>) list.get(null)).clear();
                return;
            } catch (NoSuchFieldException error) {
                // it is called otherwise in this version
            }
        }
        throw new IllegalStateException("the list of commands was not found");
    }
}
