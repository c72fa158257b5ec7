"""List the function words of English and German statements: empty words, words of change, of retraction.

Only closed classes are listed. Every other word of a statement is its subject or a value.
"""

from __future__ import annotations

import re

from sakti.core.patterns import lazy_pattern

# Words that say nothing about what is spoken of, those that tell of a change among them.
EMPTY = frozenset(
    """a an the this that these those there here it it's its our ours your my mine their his her i i'm i've i'd we
    we're we've we'll you u he she they them us me is are was were be been being am will would shall should must may
    might can could do does did done has have had having not no nor never nope nah and or but so if then than as at
    by for from in into of off on onto out over to up with within without about until till per via also too very
    just only already still well please pls let let's lets ok okay yes actually now instead rather anymore any more
    longer correction correct corrected thing things something anything everything one ones all each every both
    other another same such what which who when where why how ever once again back down away use uses used using
    need needs needed want wants wanted remember note mind keep keeps kept call calls called go goes going went get
    gets got gotten make makes made take takes took run runs running live lives lived sit sits stand stands stay
    stays stayed remain remains decide decided decision agreed settled choose chose chosen pick picked change
    changes changed changing move moved moves moving switch switched switches switching replace replaced replaces
    replacing update updated updates updating upgrade upgraded upgrading new old former previous previously earlier
    before after mean meant say said says told tell drop dropped scrap scrapped forget ignore cancel cancelled
    canceled withdrawn withdraw retract retracted rename renamed postponed delayed pushed shifted rescheduled
    slipped slips slip bump bumped raise raised lower lowered reduce reduced increase increased extended extend
    brought forward gone between zwischen uhr
    table strike undo revert reverted retired obsolete deprecated abandoned unnecessary against
    wrong mistake scope sorry scratch wait hm hmm oh btw thought second end set sets setting give gives gave try
    tried put dont don't doesn't isn't wasn't because since while yesterday today tomorrow tonight night morning
    evening ago recently last next week month really currently swap swapped bit way like know think guess fine good
    there's that's what's hi hello hey thanks rest else everywhere anyway though i'll send sends sent ends ended
    come comes came start starts started begin begins everyone everybody somebody pro become becomes became double
    doubled halve halved migrate migrated ditch ditched turn turned abandon supersede supersedes superseded person
    people cut cuts mixed bad named due below above assume assumes assumed exactly simply definitely
    probably maybe perhaps der die das den dem des ein eine einen einem einer eines kein keine keinen keiner und
    oder aber sondern doch lieber statt stattdessen anstatt anstelle nicht nichts mehr jetzt nun neu neue neuer
    neues neuen ab sofort nutze benutze benutzen benutzt verwendet verwende steht stehen gewechselt umgezogen
    umgestiegen gekündigt krank erst wieder mindestens höchstens maximal brauchen braucht künftig ist sind war waren
    wird werden wurde wurden sei hat haben hatte bin bist sein auf aus bei beim bis durch für gegen im ins mit nach
    ohne über um unter vom von vor zu zum zur als wie wo wann warum wer es er sie wir ich ihr uns man mein meine
    unser unsere unseren dein bitte mal noch schon nur auch dann denn da dort hier immer alle alles stimmt stimmen
    gilt heißt nehmen nimmt nutzen nutzt verwenden machen macht soll sollen sollte kann können muss müssen darf
    bleibt bleiben geändert ändert ändern erhöhen erhöht erhöhe gesenkt senken umgestellt wechselt wechseln
    verschiebt verschoben verschieben ersetzt ersetzen umbenannt läuft laufen beträgt liegt liegen seit eigentlich
    übrigens kurz ach quatsch korrektur besser richtig falsch gestern heute morgen sich dass wenn weil ja nein halt
    eben gut handle handles handling handled manage manages managed own owns owner responsible charge care lift lifted
    sits relocated transferred transfer turns switches feels feel short long small few eher
    steigen steigt gestiegen sinken sinkt gesunken übernommen zuständig betreut kümmert macht
    w/ w/o ur cuz coz cos gonna wanna gotta kinda sorta lol tbh imo imho afaik asap ppl em 'em dunno ya
    yep yup is's hab habs hats isses ne nee nö grad gerade eh warte neben til itself happening happen
    happens kindly preponed calling naming dropping asked ask asks musste moment sonst bzw ganz sehr
    ziemlich exchange exchanged decommissioned discontinued enough suffices reicht genügt prefers prefer
    dr mr mrs prof herr frau migriert portiert angehoben gegangen verlassen deshalb deswegen daher
    therefore hence thus starting dieser diese dieses diesem diesen erfolgt erfolgen meint meinte sagte
    findet fand mich mir dich dir euch drauf drin dran damit dafür davon dazu bereits gern gerne wohl
    leider endlich natürlich sogar fast gleich später früher nachher vorher danach dabei etwas viel viele
    gestellt gesetzt habe hast habt hätte hätten würde würden dürfen möchte möchten wollen wollte wollten
    lassen lässt gibt geben ging gehen geht kam kommt kommen passt bekommt bekommen startet starten
    gestartet beginnt beginnen endet enden least most many much lot lots often usually quite pretty almost
    even yet soon later finally basically thinks seems seem look looks looked scale scaled scaling trim
    trimmed shrink shrunk grow grew expand expanded tighten tightened relax relaxed crank cranked adjust
    adjusted adapt adapted rework reworked planned scheduled geplant ist's hoch rauf runter""".split()
)

# One of these words, or two of the others, and a sentence is taken for German: there any noun has a capital.
GERMAN = frozenset(
    """der das den dem und oder aber nicht ist sind wird wir ich für auf mit im vom zum zur bei bitte jetzt kein keine
    sondern sofort unser unsere über unter beträgt heißt immer nachts""".split()
)
PERHAPS_GERMAN = frozenset(
    "die des ein eine einen doch noch nur auch mehr ab am an nach seit durch statt in so".split()
)

# Words for the same thing: the last of each line stands for all of it.
SAME = {
    word: line.split()[-1]
    for line in """
        db datenbank database
        repo repository
        config configuration
        prod produktion production
        env environment
        docs documentation
        dev development
        pw password
        staging stage
        req reqs rps rpm requests request
        char chars charact
        dim dims dimension
        lib libs library
        msg msgs message
        stel stellig digit
        wide width
        breit breite
        tall height
        max maximum limit
        sec secs s sekunde sekunden second
        min mins minuten minutes minute
        h hrs stunde stunden hour
        tag tage tagen day
        woche wochen week
        monat monate month
        euros eur € euro
        pixel pixels px
        percent prozent %
    """.strip().split("\n")
    for word in line.split()
}


# Behind a full stop: that it does not end a shortened word or a first letter of a name.
_NOT_SHORT = "".join(
    rf"(?<!\b{word}\.)"
    for word in "Dr Mr Mrs Ms Prof Hr Fr Nr St Mio Mrd ca vs bzw approx inkl max min evtl ggf [A-Z]".split()
)
# Where a sentence ends and the next begins, however many spaces are between them.
BETWEEN_SENTENCES = (
    rf"(?<=[.!?…]){_NOT_SHORT}\s+(?=[\"'`(\[]?[A-Z0-9`])"
    r"(?!(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-zä]*\b)"
)


def _any(*lines: str, signs: str = "") -> re.Pattern[str]:
    """Compile a pattern for any of the words and phrases, ignoring case.

    They are separated by commas; `signs` need no word boundary.
    """
    words = _by_letter([word.strip() for line in lines for word in line.split(", ")])
    return lazy_pattern(rf"\b(?:{words})\b{signs and '|'}{signs}", re.IGNORECASE)


def _by_letter(words: list[str]) -> str:
    """Join words as alternatives, grouped by their first letter.

    `re` skips impossible positions by one look at a set of letters, but compares each word where case is ignored.
    """
    groups: dict[str, list[str]] = {}
    for word in words:
        plain = word[:1].isalpha() and word[1:2] not in tuple("?*{|")
        groups.setdefault(word[0] if plain else word, []).append(word[1:] if plain else word)
    return "|".join(
        f"(?-i:[{first}{first.upper()}])(?:{'|'.join(rest)})" if len(first) == 1 else first
        for first, rest in groups.items()
    )


# "today", "Monday", "January"
_DAY = r"\w{2,6}day|(?:jan|febr)uary|march|april|may|june|july|august|(?:sept|nov|dec)ember|october"

# Something is put in the place of something else, or was.
REPLACES = _any(
    r"now, no longer, no more, any ?more, any longer, instead, rather than, in place of, actually, since",
    r"correct(?:ion|ed), chang(?:e[ds]?|ing), mov(?:e[ds]?|ing), switch(?:ed|es|ing)?, replac(?:e[ds]?|ing)",
    r"renam(?:e[ds]?|ing), supersed\w+, updat(?:e[ds]?|ing), (?:up|down)grad(?:e[ds]?|ing), bump(?:ed|s|ing)?",
    r"resign(?:s|ed)?, taken over, (?:runter|herunter|hoch|herauf|rauf)\w+, lift(?:ed|s)?, relocat\w+",
    r"transferr?(?:ed|s)?, turns out, away from, moving off",
    r"weg von, aktuell, these days, wrong, falsch, told you, steig\w+, gestiegen, sink\w+, gesunken, übernommen",
    r"raise[ds]?, raising, lower(?:ed|s|ing)?, increase[ds]?, decrease[ds]?, reduce[ds]?, doubled?, halved?",
    r"cut (?:it |that )?to, swap(?:s|ped|ping)?, migrat(?:e[ds]?|ing), became, becomes, turn(?:s|ed) into",
    r"drop, dropp(?:ed|ing), scrap(?:ped)?, ditch(?:ed)?, cancel\w*, withdr[ae]w\w*, retract\w*, forget, ignore",
    r"strike, revert\w*, roll(?:ed)? back, undo, gone, obsolete, deprecated, retired, abandon\w*, off the table",
    r"out of scope, p(?:ost|re)poned?, wait (?:un)?til, (?:go(?:es|ing)?|went) (?:up |down |back )?to",
    r"push(?:ed|es)? (?:\w+ )?(?:back|out|to), brought forward, slip(?:s|ped)",
    r"delay(?:ed|s)?, extend(?:ed|s)?, shift(?:ed|s)?, reschedule[ds]?, decided against, set (?:[\w-]+ ){1,6}to",
    r"(?:down|up|back) to, from now on, as of, is over, does(?:n't| not) hold, not needed, unnecessary",
    r"(?:won't|don't|doesn't|do not|does not|will not|needn't) (?:be )?need\w*, took (?:that|it) back",
    r"take (?:that|it|back), in the end, on second thoughts?, after all, changed (?:our|my) minds?",
    r"i (?:was|were) wrong, my mistake, my bad, misspoke, typo, turned out, mixed (?:that |it |this )?up, i meant",
    r"i mean, scratch that, sorry, wait,? no, no wait, hm+ no, nah, nope, make (?:that|it), fell through",
    r"(?:is|are|was) out, left, quit, dropped out, on (?:\w+ )?leave, stepped down, took over, takes over, leave out",
    r"better, too (?:slow|strict|expensive|short|long|small|big|large|low|high|hard|easy|noisy|bright|dark)",
    r"jetzt, nun, ab sofort, neuerdings, inzwischen, mittlerweile, nicht mehr, nicht länger, künftig, erst, wieder",
    r"keine?[nmrs]? \w+ mehr, sondern, statt(?:dessen)?, anstatt, anstelle, doch, lieber, besser, seit, korrektur",
    r"korrigiere, quatsch, ach nein, nee, verwechselt, vertan, mein fehler, geändert, ändern, ändert, umgestellt",
    r"umgezogen, umgestiegen, gewechselt, wechseln?, wechselt, verschiebt, verschoben, verschieben, verlegt",
    r"verlängert, erhöh\w*, gesenkt, senken?, ersetz\w*, umbenannt, aktualisier\w*, abgelöst, löst, krank, gekündigt",
    r"übernimmt, gestrichen, streich\w*, vergiss, entfällt, fällt weg, raus, weg damit",
    r"exchanged?, substitut\w+, (?:is|are|will be|should be) (?:enough|sufficient|plenty), suffices?, will do",
    r"(?:would|['’]d) (?:prefer|rather), prefers, reich(?:t|en), genüg(?:t|en), möchten? lieber",
    rf"hätten? (?:gern|lieber), (?:as )?from (?:today|tomorrow|here|next), starting (?:{_DAY}|tomorrow|next), ab heute",
    r"ab morgen, seit heute, (?:migr|port)iert, portier\w*, ausgetauscht, getauscht, tausch\w*, angehoben",
    r"(?:hoch|rauf|runter) auf",
    r"heraufgesetzt, herabgesetzt, hochgezogen, verkleinert, vergrößert, verkürzt, vorgezogen, vertagt, korrigier\w*",
    r"gegangen, umgebaut, umgeschrieben, rewr[io]t\w+, redrawn, ported, ripped out, kicked out, threw out, binned",
    r"axed, (?:decommission|discontinu|phas|retir)(?:ed|ing)(?: out)?, sunset(?:ting|ted)?",
    r"handed (?:\w+ ){0,4}over, moved on",
    r"warte, moment mal, oops, hoppla, whoops, excuse me, my fault, got (?:that|it) wrong, entschuldigung, too \w+",
    signs="-+>|→|=>|➜|⇒|~~",
)
# Weaker: says how something is to be, and that may differ from what it was.
SETS = _any(
    r"should, must, has to, have to, needs? to, will, shall, set, use, give, gets?, try, let['’]?s, becomes?, for now",
    r"until, so, to be, be, want, i'd say, please, pls, soll\w*, muss, auf, bitte",
)
TAKES_BACK = _any(
    r"not, never, no longer, no more, \w+n['’]t, dont, doesnt, any ?more, any longer, cancel\w*, drop\w*, scrap\w*",
    r"ditch\w*, retract\w*, withdr\w+, forget, ignore, strike, remov\w+, off the table, gone, obsolete, unnecessary",
    r"instead of, in place of, rather than, replac\w+, from, against, abandon\w*, retired, out of scope, is out",
    r"are out, leave, nicht mehr, nicht, kein\w*, statt, anstatt, anstelle, vergiss, gestrichen, entfällt, streich\w*",
    r"raus",
)
ADDS = _any(
    r"another, additional(?:ly)?, as well, (?:a|the) second, third, besides, in addition, add(?:s|ed|ing)?",
    r"too(?=\s*[.,!]?\s*$), auch, zusätzlich, außerdem, noch eine?n?, weitere[rsn]?",
)
# Only thinks of something.
WONDERS = _any(
    r"could (?:be|also|try|use|go|have), might, some ?day, suppose, what if, would be (?:nice|cool)",
    r"if we (?:had|used|were)",
    r"irgendwann, könnten? (?:wir|man|ja), wäre (?:schön|cool|nett), angenommen",
)
# Tells of what was, elsewhere or long ago.
NARRATES = _any(
    r"(?:old|previous|former|earlier|last) (?:product|project|version|company|job|team|portal|system|game|app|"
    r"firm|employer)s?",
    r"back then, used to, in my (?:thesis|studies|phd), years ago, in those days, früher, damals, seinerzeit",
    r"(?:alten?|alte[rs]|vorige[nrs]?|letzte[nrs]?|frühere[nrs]?) (?:firma|projekt|job|version|system|"
    r"arbeitgeber|stelle)",
    r"last (?:year|quarter|summer|winter|time) (?:we|i|they|it) (?:used|had|did|were|was|tried|ran)",
    r"(?:our|their|the|a|my|another|other) (?:competitors?|rivals?|(?:other|neighbou?ring|sister|old|second) "
    r"(?:team|company|department|project)|friends?|brother|sister|cousin|neighbou?rs?)(?:['’]s)?",
    r"(?:unsere?|die|der|ein|mein) (?:konkurren[zt]\w*|wettbewerber|mitbewerber|nachbar\w*|freund(?:in)?|bruder|"
    r"schwester|kollege)",
)
STAYS = _any(
    r"stays?, stayed, remains?, still, unchanged, as before, as is, alone, untouched, wie gehabt, bleibt, bleiben",
    r"weiterhin, nach wie vor, unverändert",
)
# Puts right what was said a moment ago, without saying of what it speaks.
CORRECTS = _any(
    r"make (?:that|it), mixed (?:that |it |this )?up, my bad, misspoke, i was wrong, scratch that, i meant, i mean",
    r"sorry, correction, wait,? no, no wait, hm+ no, on second thoughts?, actually, nah, nope, or rather, better",
    r"lets? (?:do|make it|take|say), warte, moment mal, oops, hoppla, excuse me, korrigier\w*",
    r"(?:is|are) (?:enough|fine|plenty|sufficient), will do, suffices?, reich(?:t|en), genüg(?:t|en), mach mal",
    r"entschuldigung, korrektur, ich meinte, ach nein, doch, lieber, besser, quatsch, sondern",
    signs="^no,",
)
# What was in use is not any more.
STOPS_USING = _any(
    r"(?:don['’]?t|do not|doesn['’]?t|does not|not|never|no longer|stop(?:ped)?) (?:us(?:e|ing)|need|run|have)",
    r"drop(?:ped)?, scrap(?:ped)?, ditch(?:ed)?, retired?, got rid of, get rid of, instead of, away from, replaced?",
    r"superseded, left, quit, gone, dropped out, stepped down, on (?:\w+ )?leave, nicht mehr, weg von",
    r"kein\w* \w+ mehr, statt, anstatt, ersetzt, abgelöst, raus, krank, gekündigt, im ruhestand, in rente",
    r"ripped out, kicked out, threw out, binned, axed, (?:decommission|discontinu|phas|retir)(?:ed|ing)(?: out)?",
    r"verlassen, rausgeflogen, abgeschaltet, abgekündigt, in elternzeit",
)
RENAMES = _any(
    r"renam\w+, umbenannt, heißt jetzt, (?:is|are) (?:now )?called, (?:call|nam)ing (?:it|this|that|them)",
    r"call (?:it|this|that|them)",
)
# Does so from now on: what stands right before.
TAKES_OVER = lazy_pattern(
    r"\s(?:(?:has |have |had )?(?:takes?|took|taken) (?:its|that|his|her|their) place|(?:has |have )?(?:takes?|"
    r"took|taken) over|it is\b|(?:does|do) the (?:same|job|trick)|"
    r"(?:will |is going to )?(?:steps?|stepped|jumps?|jumped|fills?|filling|covers?) (?:in|for)\b|springt|"
    r"steht an|übernimmt|"
    r"kommt (?:dafür|stattdessen))",
    re.IGNORECASE,
)
# Stands behind a name: what people do.
DOES = lazy_pattern(
    r"\s(?:and [A-Z]\w{1,30} )?(?:does|do|handles?|owns?|leads?|maintains?|manages?|looks? after|takes? care|"
    r"reviews?|writes?|"
    r"draws?|signs?|approves?|is (?:responsible|in charge|on (?:call|leave|holiday|vacation)|sick))\b"
)
# Means what was spoken of before.
ANAPHORA = _any(r"that, it, this, those, them, es, davon")
# Gives something a name.
TITLES = _any(r"names?, titles?, titel, called, named, heißt, heißen, project, projekt")
# Stands before what is in use: "written in", "tests run with".
IN_USE = lazy_pattern(
    r"(?:\b(?:in|on|with|via|by|using|uses?|from|of|is|mit|auf|aus|bei|über|ist|nutzen|nehmen)|[=:]|->)\s(?:the |a |"
    r"an |our |de[mnr] |das |die |eine?[mnr]? )?$",
    re.I,
)
# Draws a consequence, so that what stands behind may take the place of what stood before it.
SO = _any(r"so, therefore, hence, thus, that['’]s why, which is why, deshalb, deswegen, daher, darum", signs="->|→|;")
# Takes something into use: what stands right behind.
TAKES_UP = lazy_pattern(
    r"\b(?:us(?:e|es|ing)|tak(?:e|es|ing)|took|(?:go|goes|going|went) (?:with|for|to)|(?:switch|mov|migrat|port|chang|"
    r"convert)(?:e?d|ing|e)? (?:[\w ]{1,40} )?to|nehme[nt]?|nutzen|benutzen|setzen (?:jetzt |nun )?auf|auf|"
    r"aufs|are on|assume|make it|let it be|(?:sits?|lies?) with|goes to|dafür (?:\w+ )?(?:kommt|nehmen|"
    r"gibt)(?: wir| es| jetzt)?|stattdessen|"
    r"am on|by|durch) (?:the |a |our |die |den |das |eine? |einen )?$",
    re.IGNORECASE,
)
# What is done to a file, which says nothing of what it is.
HANDLES = _any(r"ignore, remove, leave, strike, delete, never, don['’]?t, do not")
COPULA = _any(
    r"is, are, was, were, will be, has to be, should be, must be, equals, uses?, (?:it|that|there|here|what|who)['’]s",
    r"ist, sind, war, wird, beträgt, heißt, lautet, liegt bei",
    signs=r"=|:(?=\s)",
)
# What stands between clauses; a capital at a word that says nothing begins one without a full stop before it. "and"
# parts them where both sides say something (see `reading`).
CLAUSE_END = _any(
    r"because, since, while, whereas, so that, weil, während, sodass, and(?=\s), but(?=\s), so(?=\s), or(?=\s)",
    r"und(?=\s), aber(?=\s)",
    signs=rf"[;—]|–(?!\d)|(?<!\d)–|,(?!\d|\s(?:19|20)\d\d\b)|(?<!\b\d)(?<!\b\d\d)[.]{_NOT_SHORT}(?=\s)|"
    r"[:!?](?=\s)|\s(?=\((?=\w))|(?<=[\w`)\"])\s(?=(?-i:The|Our|We|Actually|Please|Let['’]s|Since|As|You|Keep|Remember|"
    r"For|It|There|Correction|This|That|My|Is|Can|Could|Note|I (?:had|have|think|want|was|will|am|set))\s)",
)
# "in every environment": says nothing of which.
EVERYWHERE = _any(r"(?:in|for|on|at|across|auf|für) (?:every|each|all|jede[mnr]?|alle[mn]?) \w{1,40}")
# Who wishes or says something, which is not what it is of.
ATTRIBUTED = lazy_pattern(
    r"\b\w{1,40}(?=\s(?:(?:has|have|hat|haben|had|would)\s)?(?:says?|said|asks?|asked|wants?|wanted|prefers?|"
    r"preferred|insists?|"
    r"meint|meinte|sagt|sagte|möchte|verlangt|besteht|(?:changed|set|raised|lowered) (?:the|our|it|its))\b)",
    re.IGNORECASE,
)
# What a negation reaches.
NEGATED = lazy_pattern(
    r"\b(?:no longer|no more|not|never|\w+n['’]t|dont|nicht|keine?[nmrs]?)\b(?P<scope>[^,;]{1,120}?)"
    r"(?=[,;.!?](?:\s|$)|\b(?:but|sondern|because|weil)\b|$)",
    re.IGNORECASE,
)
MONTHS = _any(
    r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:[a-z]*ber|uary|ruary|ch|il|ust)?, januar, februar",
    r"märz, mai, juni, juli, oktober, dezember, okt, dez",
)
DAYS = _any(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?, (?:mon|tue|wed|thu|fri|sat|sun), weekends?",
    r"(?:mon|diens|donners|frei|sams|sonn)tags?, mittwochs?, noon",
    r"midnight, mittags, mitternacht, wochenende",
)
OFTEN = _any(
    r"daily, weekly, monthly, quarterly, yearly, hourly, nightly, fortnightly, biweekly, täglich, wöchentlich",
    r"monatlich, jährlich, stündlich, vierteljährlich",
)
ORDINAL = _any(r"\d{1,2}(?:st|nd|rd|th), first, third, fourth, fifth, last, ersten?, dritten?, letzten?")
# Behind a number: it is a time of day.
CLOCK = frozenset(("uhr", "o'clock", "o’clock", "am", "pm"))
# How something is at the moment: no value that another one replaces.
STATES = frozenset(
    """slow fast green red yellow broken fine ok okay done ready better worse passing failing failed up down busy stuck
    finished complete stable unstable flaky grün rot kaputt fertig bereit langsam schnell gut schlecht besser
    schlechter stabil""".split()
)
# Two words of which one takes the place of the other.
OPPOSITES = (
    frozenset("on enabled enable true allowed yes active an aktiv aktiviert erlaubt ja".split()),
    frozenset("off disabled disable false forbidden no inactive aus inaktiv deaktiviert verboten nein".split()),
)
# What is measured or named, whatever it is of: one that says it and one that does not may mean the same.
GENERIC = frozenset(
    "limit valu numb sett amount threshold delay interval period duration version addres level colour color dat "
    "termin siz rang retention".split()
)
DIMENSIONS = {
    unit: kind
    for kind, units in {
        "time": "ms second minute hour day week month year jahr",
        "size": "b byte kb mb gb tb kib mib gib",
    }.items()
    for unit in units.split()
}
MEASURES = frozenset(DIMENSIONS) | frozenset("percent % px euro ms us hz khz mhz ghz gi mi k m s".split())
NUMBERS = {
    word: figure
    for words in (
        "zero two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty hundred",
        "null zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig vierzig fünfzig "
        "sechzig hundert",
    )
    for word, figure in zip(words.split(), "0 2 3 4 5 6 7 8 9 10 11 12 20 30 40 50 60 100".split(), strict=True)
}
