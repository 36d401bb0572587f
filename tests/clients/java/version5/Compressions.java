import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;

/** Bodies that the client compresses, by each way that version 5 has. */
final class Compressions {
    private Compressions() {
    }

    static String byEachType(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        CompressionType[] types = CompressionType.values();
        for (int number = 0; number < types.length; number++) {
            Message message = place.message(number);
            message.setBody(Sends.text());
            producer.setCompressType(types[number]);
            Place.acknowledged(producer.send(message));
        }
        for (Inbox.Delivery one : inbox.expectOnce(place.keys(types.length), Place.SECONDS)) {
            Failed.unless(Arrays.equals(one.message().getBody(), Sends.text()), one.key() + " has another body");
        }
        return "1 MB by " + Arrays.toString(types) + ": equal bodies came";
    }
}
