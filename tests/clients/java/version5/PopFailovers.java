import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Two consumers pop while a leader dies. */
final class PopFailovers {
    private PopFailovers() {
    }

    static String shared(Place place) throws Exception {
        Inbox inbox = new Inbox();
        List<Set<String>> shares = new ArrayList<>();
        Pops.popping(place);
        for (int number = 0; number < 2; number++) {
            Set<String> share = ConcurrentHashMap.newKeySet();
            shares.add(share);
            place.reading(Pops.consumer(place), message -> {
                inbox.add(message);
                share.add(message.getKeys());
                return true;
            });
        }
        DefaultMQProducer producer = place.producer();
        int failed = 0;
        for (Message message : place.messages(Failovers.COUNT)) {
            failed += Failovers.insist(() -> Place.acknowledged(producer.send(message)));
            Thread.sleep(50);
        }
        Failovers.expectAll(inbox, place.keys(Failovers.COUNT));
        return Failovers.COUNT + " came to two consumers (" + shares.get(0).size() + ", " + shares.get(1).size() + "), "
            + (inbox.all().size() - Failovers.COUNT) + " twice, " + failed + " sends repeated";
    }
}
