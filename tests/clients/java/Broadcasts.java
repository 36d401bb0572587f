import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** Every consumer of a group gets every message. */
final class Broadcasts {
    private Broadcasts() {
    }

    static String toThree(Place place) throws Exception {
        List<Inbox> inboxes = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            DefaultMQPushConsumer consumer = place.consumer();
            // The type moved to another package in version 5, so it is not named here.
            var model = consumer.getMessageModel();
            consumer.setMessageModel(model.valueOf("BROADCASTING"));
            inboxes.add(place.reading(consumer));
        }
        Place.send(place.producer(), place.messages(Place.MESSAGES));
        for (Inbox inbox : inboxes) {
            inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        }
        return Place.MESSAGES + " sent, each came once to each of 3 consumers";
    }
}
