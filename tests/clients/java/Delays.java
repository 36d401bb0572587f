import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Messages for later. */
final class Delays {
    private Delays() {
    }

    /** Levels 1 to 3 are 1, 5 and 10 seconds. */
    static String byLevel(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        long[] seconds = {0, 1, 5, 10};
        Map<String, Long> due = new HashMap<>();
        for (int number = 0; number < 12; number++) {
            Message message = place.message(number);
            message.setDelayTimeLevel(number % 4);
            due.put(place.key(number), System.currentTimeMillis() + 1000 * seconds[number % 4]);
            Place.acknowledged(producer.send(message));
        }
        return onTime(inbox, due);
    }

    /** Each message came once, not before its time; the detail says how late. */
    static String onTime(Inbox inbox, Map<String, Long> due) throws Exception {
        long worst = 0;
        for (Inbox.Delivery one : inbox.expectOnce(due.keySet(), Place.SECONDS)) {
            long late = one.atMillis() - due.get(one.key());
            Failed.unless(late >= 0, one.key() + " came " + -late + " ms early");
            worst = Math.max(worst, late);
        }
        return due.size() + " came once, none early, at most " + worst + " ms late";
    }
}
