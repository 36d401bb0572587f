import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Runs scenarios of the Java client, several at once in one process. Its argument is the name server's address; a
 * line "ID Noun.verb TOPIC" of its input runs the method "verb" of the class "Noun" on a topic of its own.
 */
public final class Scenarios {
    private static final int AT_ONCE = 16;

    private Scenarios() {
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        // By default queues are shared out every 20 s.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "2000");
        String names = arguments[0];
        RPCHook signing = Options.signing(System.getProperty("credentials"));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(signing);
        admin.setNamesrvAddr(names);
        admin.setInstanceName("admin");
        admin.start();
        new LineServer(words -> run(words, names, admin, signing), AT_ONCE).serve();
    }

    private static String run(List<String> words, String names, DefaultMQAdminExt admin, RPCHook signing)
            throws Exception {
        String[] scenario = words.get(0).split("\\.");
        Method method = Class.forName(scenario[0]).getDeclaredMethod(scenario[1], Place.class);
        try (Place place = new Place(names, words.get(1), admin, true, signing)) {
            place.makeTopic(place.topic);
            return (String) method.invoke(null, place);
        } catch (InvocationTargetException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }
}
