"""What the web frame calls: plain dictionaries, ready for a template."""

from catalog.pages import Page

PAGE_SIZE = 20


def order_list(orders, customer, number=1, size=PAGE_SIZE):
    page = Page(number, size, orders.count(customer))
    shown = orders.slice(customer, page.start, page.size)
    return {
        "orders": [{"number": o.number, "price": f"{o.cents / 100:.2f}"} for o in shown],
        "footer": f"page {page.number} of {page.count}",
        "pages": page.around(),
        "next": f"?page={page.number + 1}" if page.has_next else None,
        "previous": f"?page={page.number - 1}" if page.has_previous else None,
    }
