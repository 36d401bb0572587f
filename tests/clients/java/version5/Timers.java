import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Messages for any time, which clients of version 5 have. */
final class Timers {
    private Timers() {
    }

    static String onTime(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        Map<String, Long> due = new HashMap<>();
        for (int number = 0; number < 9; number++) {
            Message message = place.message(number);
            long now = System.currentTimeMillis();
            long later = now + 2000 + 1000 * number;
            switch (number % 3) {
                case 0 -> message.setDelayTimeSec(2 + number);
                case 1 -> message.setDelayTimeMs(2000 + 1000 * number);
                default -> message.setDeliverTimeMs(later);
            }
            due.put(place.key(number), later);
            Place.acknowledged(producer.send(message));
        }
        return Delays.onTime(inbox, due);
    }

    /** Every second message is taken back. */
    static String recalled(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        for (Message message : place.messages(10)) {
            message.setDelayTimeSec(5);
            SendResult result = Place.acknowledged(producer.send(message));
            if (Integer.parseInt(message.getUserProperty("n")) % 2 == 1) {
                String id = producer.recallMessage(place.topic, result.getRecallHandle());
                Failed.unless(result.getMsgId().equals(id), "the id " + id + " was taken back");
            }
        }
        List<String> keys = place.keys(10);
        inbox.expectOnce(List.of(keys.get(0), keys.get(2), keys.get(4), keys.get(6), keys.get(8)), Place.SECONDS);
        return "5 of 10 taken back, the others came once";
    }
}
