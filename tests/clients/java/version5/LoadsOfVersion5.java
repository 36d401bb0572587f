import java.util.List;

/** Loads for what only clients of version 5 can do. */
final class LoadsOfVersion5 {
    private static final int SPREAD = 8;

    private LoadsOfVersion5() {
    }

    /** Between one and four and a half seconds later. */
    static void timers(Place place, Journal journal) throws Exception {
        Loads.reading(place, place.consumer(), journal, "reader", message -> true);
        Loads.send(place, journal, message -> {
            long millis = 1000 + 500 * (Integer.parseInt(message.getUserProperty("n")) % SPREAD);
            message.setDelayTimeMs(millis);
            return millis;
        });
        Losses.drain(journal);
    }

    /** Two consumers pop. */
    static void pops(Place place, Journal journal) throws Exception {
        journal.reader("all");
        Pops.popping(place);
        for (String reader : List.of("first", "second")) {
            Loads.listen(place, Pops.consumer(place), journal, reader, message -> true, message -> 0);
        }
        Loads.send(place, journal, message -> 0);
        Losses.drain(journal);
    }
}
