import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.entry.DLedgerEntryType;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;

/**
 * Drives Java DLedger's own file store by commands on standard input, one a line:
 *
 * <pre>
 * open BASE NODE DATA_FILE_BYTES INDEX_FILE_BYTES    runs Java's recovery; answers before, end, end term, write position
 * lead TERM                                          the store takes appends of that term from now on
 * append MAGIC BODY_IN_BASE64                        MAGIC 1 or 2; answers index and position
 * truncate INDEX                                     drops the entry at INDEX and all behind it; answers the new end
 * dump                                               a line for every entry that Java's own get() returns
 * close
 * </pre>
 *
 * Each answer ends with a line "ok" and what the command answers, or "failed" and an exception. Recovery that gives up calls
 * System.exit; then there is no answer.
 */
public final class StoreSession {
    private final PrintStream out;
    private DLedgerMmapFileStore store;
    private MemberState member;

    private StoreSession(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // whatever libraries print must not be taken for an answer
        StoreSession session = new StoreSession(out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok " + session.execute(line.split(" ", -1)));
            } catch (Exception | LinkageError error) {
                out.println("failed " + error.toString().replace('\n', ' '));
            }
            out.flush();
        }
        System.exit(0); // threads of the store do not end by themselves
    }

    private String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                return open(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "lead":
                member.setCurrTermForTest(Long.parseLong(words[1]));
                member.changeToLeader(Long.parseLong(words[1]));
                return "";
            case "append":
                return append(Integer.parseInt(words[1]), Base64.getDecoder().decode(words[2]));
            case "truncate":
                return Long.toString(store.truncate(Long.parseLong(words[1])));
            case "dump":
                return dump();
            case "close":
                store.flush(); // its threads were never started, so there is nothing to shut down
                return "";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String open(String base, String node, int dataBytes, int indexBytes) {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g");
        config.setSelfId(node);
        config.setPeers(node + "-127.0.0.1:1");
        config.setStoreBaseDir(base);
        config.setMappedFileSizeForEntryData(dataBytes);
        config.setMappedFileSizeForEntryIndex(indexBytes);
        config.init();
        member = new MemberState(config);
        store = new DLedgerMmapFileStore(config, member);
        store.load();
        store.recover();
        return store.getLedgerBeforeBeginIndex() + " " + store.getLedgerEndIndex() + " " + store.getLedgerEndTerm() + " "
            + store.getWritePos();
    }

    private String append(int magic, byte[] body) {
        DLedgerEntry entry = new DLedgerEntry(magic == 2 ? DLedgerEntryType.NOOP : DLedgerEntryType.NORMAL);
        entry.setBody(body);
        DLedgerEntry appended = store.appendAsLeader(entry);
        return appended.getIndex() + " " + appended.getPos();
    }

    private String dump() throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        for (long index = store.getLedgerBeforeBeginIndex() + 1; index <= store.getLedgerEndIndex(); index++) {
            DLedgerEntry entry = store.get(index);
            byte[] body = entry.getBody() == null ? new byte[0] : entry.getBody();
            StringBuilder digest = new StringBuilder();
            for (byte part : sha256.digest(body)) {
                digest.append(String.format("%02x", part));
            }
            out.println(entry.getIndex() + " " + entry.getTerm() + " " + entry.getPos() + " " + entry.getMagic() + " "
                + entry.getSize() + " " + entry.getChannel() + " " + Integer.toUnsignedString(entry.getChainCrc()) + " "
                + Integer.toUnsignedString(entry.getBodyCrc()) + " " + body.length + " " + digest);
        }
        return "";
    }
}
