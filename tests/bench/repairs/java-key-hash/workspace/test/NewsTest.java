import java.util.List;
import news.Address;
import news.Mailing;
import news.MailingList;
import news.Preferences;

public final class NewsTest {
    public static void main(String[] arguments) {
        MailingList list = new MailingList();
        Preferences preferences = new Preferences();
        check(list.subscribe(new Address("bob@example.org")));
        check(list.subscribe(new Address("ada@example.org")));
        check(!list.subscribe(new Address("ada@example.org")));
        preferences.setLanguage(new Address("bob@example.org"), "fr");
        check(Mailing.envelopes(list, preferences).equals(List.of("en ada@example.org", "fr bob@example.org")));
        check(Preferences.same(new Address("A@x"), new Address("a@x")));
        check(list.unsubscribe(new Address("bob@example.org")));
        System.out.println("ok");
    }

    private static void check(boolean holds) {
        if (!holds) {
            throw new AssertionError();
        }
    }
}
