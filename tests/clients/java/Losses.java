import java.lang.reflect.InvocationTargetException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Keeps features under load while leaders are lost. Its argument is the name server's address; a line "ID load
 * Noun.verb TOPIC FILE" of its input runs a load on a topic of its own, which is written into the file, until the line
 * "ID stop" comes; then it waits for what is still to come. All settings of the clients are their own.
 */
public final class Losses {
    private static final int AT_ONCE = 32;
    /** A consumer finds a topic of repeats, and a broker asks about a transaction, after 30 s each. */
    private static final int DRAIN_SECONDS = 100;
    /** What comes twice may come last. */
    private static final long AFTERWARDS_MILLIS = 2000;

    private static final Map<String, Journal> JOURNALS = new ConcurrentHashMap<>();

    private Losses() {
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        String names = arguments[0];
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(names);
        admin.setInstanceName("admin");
        admin.start();
        new LineServer(words -> answer(words, names, admin), AT_ONCE).serve();
    }

    private static String answer(List<String> words, String names, DefaultMQAdminExt admin) throws Exception {
        if (words.get(0).equals("stop")) {
            JOURNALS.values().forEach(Journal::stop);
            return "stopped";
        }
        String topic = words.get(2);
        try (Journal journal = new Journal(Path.of(words.get(3))); Place place = new Place(names, topic, admin, false, null)) {
            JOURNALS.put(topic, journal);
            place.makeTopic(topic);
            load(words.get(1).split("\\."), place, journal);
        }
        return "ended";
    }

    private static void load(String[] names, Place place, Journal journal) throws Exception {
        try {
            Class.forName(names[0]).getDeclaredMethod(names[1], Place.class, Journal.class).invoke(null, place, journal);
        } catch (InvocationTargetException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    /** Wait for all that is to come. */
    static void drain(Journal journal) throws InterruptedException {
        journal.drain(DRAIN_SECONDS);
        Thread.sleep(AFTERWARDS_MILLIS);
    }
}
