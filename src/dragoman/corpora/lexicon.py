"""The lexicon of the phrasebook: English nouns, adjectives, verbs and adverbs with one German translation each.

Every English word has exactly one translation, so every sentence has exactly one, too. The tables are text, which is
easy to read and to correct; the functions below parse them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

# Each kind of noun, "english[/plural] = article German[/plural[/other singular cases]]"; without plural: a mass noun.
_NOUN_TABLE = {
    "person": """
        man/men = der Mann/Männer; woman/women = die Frau/Frauen; child/children = das Kind/Kinder
        girl = das Mädchen/Mädchen; boy = der Junge/Jungen/Jungen; doctor = der Arzt/Ärzte
        teacher = der Lehrer/Lehrer; neighbour = der Nachbar/Nachbarn/Nachbarn
        student = der Student/Studenten/Studenten; cook = der Koch/Köche; farmer = der Bauer/Bauern/Bauern
        colleague = der Kollege/Kollegen/Kollegen; guest = der Gast/Gäste; queen = die Königin/Königinnen
        nurse = die Krankenschwester/Krankenschwestern; singer = der Sänger/Sänger; painter = der Maler/Maler
        baker = der Bäcker/Bäcker; policeman/policemen = der Polizist/Polizisten/Polizisten
        actress/actresses = die Schauspielerin/Schauspielerinnen; gardener = der Gärtner/Gärtner
    """,
    "relative": """
        father = der Vater/Väter; mother = die Mutter/Mütter; brother = der Bruder/Brüder
        sister = die Schwester/Schwestern; son = der Sohn/Söhne; daughter = die Tochter/Töchter
        uncle = der Onkel/Onkel; aunt = die Tante/Tanten; grandmother = die Großmutter/Großmütter
        grandfather = der Großvater/Großväter; friend = der Freund/Freunde
    """,
    "animal": """
        dog = der Hund/Hunde; cat = die Katze/Katzen; horse = das Pferd/Pferde; cow = die Kuh/Kühe
        bird = der Vogel/Vögel; mouse/mice = die Maus/Mäuse; rabbit = das Kaninchen/Kaninchen; duck = die Ente/Enten
        goat = die Ziege/Ziegen; pig = das Schwein/Schweine; donkey = der Esel/Esel; goose/geese = die Gans/Gänse
        hen = das Huhn/Hühner; hamster = der Hamster/Hamster
    """,
    "fruit": """
        apple = der Apfel/Äpfel; pear = die Birne/Birnen; orange = die Orange/Orangen; banana = die Banane/Bananen
        plum = die Pflaume/Pflaumen; cherry/cherries = die Kirsche/Kirschen; peach/peaches = der Pfirsich/Pfirsiche
        tomato/tomatoes = die Tomate/Tomaten; strawberry/strawberries = die Erdbeere/Erdbeeren
    """,
    "dish": """
        soup = die Suppe/Suppen; potato/potatoes = die Kartoffel/Kartoffeln; egg = das Ei/Eier
        sausage = die Wurst/Würste; carrot = die Karotte/Karotten; mushroom = der Pilz/Pilze
    """,
    "pastry": """
        cake = der Kuchen/Kuchen; pizza = die Pizza/Pizzas; biscuit = der Keks/Kekse; roll = das Brötchen/Brötchen
        pancake = der Pfannkuchen/Pfannkuchen
    """,
    "staple": """
        bread = das Brot; cheese = der Käse; rice = der Reis; meat = das Fleisch; chocolate = die Schokolade
        honey = der Honig
    """,
    "beverage": """
        water = das Wasser; milk = die Milch; juice = der Saft; beer = das Bier; wine = der Wein
        lemonade = die Limonade
    """,
    "brew": """
        tea = der Tee; coffee = der Kaffee; cocoa = der Kakao
    """,
    "text": """
        letter = der Brief/Briefe; poem = das Gedicht/Gedichte; report = der Bericht/Berichte
        message = die Nachricht/Nachrichten; story/stories = die Geschichte/Geschichten
        fairy tale = das Märchen/Märchen
    """,
    "print": """
        book = das Buch/Bücher; novel = der Roman/Romane; newspaper = die Zeitung/Zeitungen
        magazine = die Zeitschrift/Zeitschriften; postcard = die Postkarte/Postkarten
    """,
    "device": """
        lamp = die Lampe/Lampen; computer = der Computer/Computer; radio = das Radio/Radios
        television = der Fernseher/Fernseher; camera = die Kamera/Kameras; printer = der Drucker/Drucker
        washing machine = die Waschmaschine/Waschmaschinen; oven = der Ofen/Öfen
        fridge = der Kühlschrank/Kühlschränke; alarm clock = der Wecker/Wecker
    """,
    "vehicle": """
        car = das Auto/Autos; bicycle = das Fahrrad/Fahrräder; motorbike = das Motorrad/Motorräder
        tractor = der Traktor/Traktoren; lorry/lorries = der Lastwagen/Lastwagen; taxi = das Taxi/Taxis
        boat = das Boot/Boote
    """,
    "transit": """
        train = der Zug/Züge; bus/buses = der Bus/Busse; tram = die Straßenbahn/Straßenbahnen
        ship = das Schiff/Schiffe
    """,
    "seat": """
        chair = der Stuhl/Stühle; sofa = das Sofa/Sofas; bench/benches = die Bank/Bänke; bed = das Bett/Betten
        armchair = der Sessel/Sessel
    """,
    "furniture": """
        table = der Tisch/Tische; cupboard = der Schrank/Schränke; shelf/shelves = das Regal/Regale
        desk = der Schreibtisch/Schreibtische
    """,
    "garment": """
        coat = der Mantel/Mäntel; shirt = das Hemd/Hemden; jacket = die Jacke/Jacken; jumper = der Pullover/Pullover
        suit = der Anzug/Anzüge
    """,
    "footwear": """
        shoe = der Schuh/Schuhe; boot = der Stiefel/Stiefel; sock = die Socke/Socken; glove = der Handschuh/Handschuhe
    """,
    "accessory": """
        hat = der Hut/Hüte; cap = die Mütze/Mützen; scarf/scarves = der Schal/Schals; belt = der Gürtel/Gürtel
        ring = der Ring/Ringe; watch/watches = die Uhr/Uhren
    """,
    "thing": """
        key = der Schlüssel/Schlüssel; cup = die Tasse/Tassen; plate = der Teller/Teller
        mug = der Becher/Becher; knife/knives = das Messer/Messer; spoon = der Löffel/Löffel
        ball = der Ball/Bälle; umbrella = der Regenschirm/Regenschirme; candle = die Kerze/Kerzen
        flower = die Blume/Blumen; picture = das Bild/Bilder; pen = der Stift/Stifte
    """,
    "container": """
        bag = die Tasche/Taschen; bottle = die Flasche/Flaschen; suitcase = der Koffer/Koffer
        box/boxes = die Kiste/Kisten; basket = der Korb/Körbe
    """,
    "opening": """
        window = das Fenster/Fenster; door = die Tür/Türen; gate = das Tor/Tore
    """,
    "room": """
        kitchen = die Küche/Küchen; living room = das Wohnzimmer/Wohnzimmer; bedroom = das Schlafzimmer/Schlafzimmer
        office = das Büro/Büros; cellar = der Keller/Keller
    """,
    "building": """
        house = das Haus/Häuser; school = die Schule/Schulen; hotel = das Hotel/Hotels; museum = das Museum/Museen
        library/libraries = die Bibliothek/Bibliotheken; restaurant = das Restaurant/Restaurants
        church/churches = die Kirche/Kirchen; theatre = das Theater/Theater
    """,
    "outdoors": """
        garden = der Garten/Gärten; park = der Park/Parks; forest = der Wald/Wälder; village = das Dorf/Dörfer
        yard = der Hof/Höfe
    """,
    "goal": """
        station = der Bahnhof/Bahnhöfe; bridge = die Brücke/Brücken; castle = das Schloss/Schlösser
        beach/beaches = der Strand/Strände; lake = der See/Seen; airport = der Flughafen/Flughäfen
    """,
}

# Shorthand for several kinds, so that a verb's line stays short.
_KIND_GROUPS = {
    "people": "person relative",
    "beings": "person relative animal",
    "edible": "fruit dish pastry staple",
    "drink": "beverage brew",
    "clothes": "garment footwear",
    "goods": "device vehicle seat furniture garment footwear accessory thing container",
    "small": "thing container accessory print",
    "place": "room building outdoors",
}

# "english comparative; German comparative; scale and whether it pleases; kinds". A word of the same scale never
# contrasts with another ("old, but new"); a word that neither pleases nor displeases stands in no contrast at all.
_ADJECTIVE_TABLE = """
    old older; alt älter; age -; people animal goods print opening building transit
    new newer; neu neuer; age +; goods print
    modern more_modern; modern moderner; age +; device vehicle building transit furniture
    young younger; jung jünger; age 0; person animal
    big bigger; groß größer; size 0; animal goods fruit pastry opening place goal transit
    small smaller; klein kleiner; size 0; animal goods fruit pastry opening place goal
    tall taller; groß größer; size 0; people
    beautiful more_beautiful; schön schöner; looks +; goods outdoors building goal
    ugly uglier; hässlich hässlicher; looks -; goods building
    cheap cheaper; billig billiger; price +; goods print fruit
    expensive more_expensive; teuer teurer; price -; goods print
    heavy heavier; schwer schwerer; weight -; container device furniture seat
    light lighter; leicht leichter; weight +; container device
    practical more_practical; praktisch praktischer; use +; device container vehicle furniture clothes
    broken -; kaputt -; use -; device vehicle seat thing container opening
    dirty dirtier; schmutzig schmutziger; dirt -; clothes thing container seat vehicle opening room
    clean cleaner; sauber sauberer; dirt +; clothes thing container vehicle opening room
    red -; rot -; colour 0; clothes accessory vehicle container thing
    blue -; blau -; colour 0; clothes accessory vehicle container thing
    green -; grün -; colour 0; clothes accessory vehicle container opening
    white -; weiß -; colour 0; clothes furniture animal thing
    black -; schwarz -; colour 0; clothes accessory vehicle animal device
    brown -; braun -; colour 0; animal furniture container seat
    warm warmer; warm wärmer; heat +; clothes
    hot hotter; heiß heißer; heat 0; brew dish
    cold colder; kalt kälter; heat 0; drink dish
    fresh fresher; frisch frischer; taste +; fruit pastry staple
    sweet sweeter; süß süßer; taste +; fruit pastry
    sour -; sauer -; taste -; fruit
    ripe riper; reif reifer; ripeness +; fruit
    delicious -; lecker -; taste +; dish pastry staple
    fast faster; schnell schneller; speed +; vehicle transit
    slow slower; langsam langsamer; speed -; vehicle transit
    loud louder; laut lauter; noise -; device vehicle transit
    quiet quieter; ruhig ruhiger; noise +; place
    dark darker; dunkel dunkler; light -; room building
    bright brighter; hell heller; light +; room
    comfortable more_comfortable; bequem bequemer; comfort +; seat clothes
    interesting more_interesting; interessant interessanter; interest +; text print
    boring more_boring; langweilig langweiliger; interest -; text print
    long longer; lang länger; length -; text
    short shorter; kurz kürzer; length +; text
    funny funnier; lustig lustiger; mood +; text person
    important more_important; wichtig wichtiger; importance +; text
    friendly friendlier; freundlich freundlicher; manner +; people
    polite more_polite; höflich höflicher; manner +; person
    clever cleverer; klug klüger; mind +; people animal
    famous more_famous; berühmt berühmter; fame +; person building print
    rich richer; reich reicher; money +; person
    poor poorer; arm ärmer; money -; person
    strong stronger; stark stärker; strength +; person animal
    brave braver; mutig mutiger; courage +; people animal
    patient more_patient; geduldig geduldiger; patience +; people
    nervous more_nervous; nervös nervöser; state -; people
    lazy lazier; faul fauler; effort -; people animal
    tired -; müde -; state -; people animal
    hungry -; hungrig -; state -; people animal
    thirsty -; durstig -; state -; people animal
    ill -; krank -; state -; people animal
    sad -; traurig -; state -; people
    happy -; glücklich -; state +; people
    angry -; wütend -; state -; people
"""

# The German stem before an ending, where it is not the word itself.
_ADJECTIVE_STEMS = {"teuer": "teur", "dunkel": "dunkl", "sauer": "saur", "müde": "müd"}

# "four English forms [+particle] [preposition]; German infinitive, du, er, participle [preposition] [dative] [sein];
# subjects; objects; marks". The third English form is the past; "-" as the fourth: no progressive. Marks: "state"
# (present tense only), "located" (may name a place), "liked" (one likes to do it), "give" (to someone); and which
# place a verb must name: "put" (where to, on or under something), "keep", "rest" and "sit" (where), "enter", "reach".
_VERB_TABLE = """
    see sees saw -; sehen siehst sieht gesehen; beings; beings vehicle thing
    hear hears heard -; hören hörst hört gehört; beings; beings transit
    watch watches watched watching; beobachten beobachtest beobachtet beobachtet; beings; beings
    buy buys bought buying; kaufen kaufst kauft gekauft; people; edible drink print goods animal
    sell sells sold selling; verkaufen verkaufst verkauft verkauft; people; goods print fruit animal
    read reads read reading; lesen liest liest gelesen; people; text print; located liked
    write writes wrote writing; schreiben schreibst schreibt geschrieben; people; text; located liked
    eat eats ate eating; essen isst isst gegessen; people; edible; located liked
    drink drinks drank drinking; trinken trinkst trinkt getrunken; people; drink; located liked
    cook cooks cooked cooking; kochen kochst kocht gekocht; people; dish; liked
    bake bakes baked baking; backen backst backt gebacken; people; pastry; liked
    look looks looked looking for; suchen suchst sucht gesucht; people; goods print animal person
    find finds found -; finden findest findet gefunden; people; goods print animal
    lose loses lost -; verlieren verlierst verliert verloren; people; small clothes
    forget forgets forgot -; vergessen vergisst vergisst vergessen; people; small clothes
    repair repairs repaired repairing; reparieren reparierst repariert repariert; people; device vehicle opening seat
    need needs needed -; brauchen brauchst braucht gebraucht; people; goods print; state
    love loves loved -; lieben liebst liebt geliebt; people; people animal; state
    like likes liked -; mögen magst mag gemocht; people; people animal edible drink; state
    know knows knew -; kennen kennst kennt gekannt; people; person print building; state
    have has had -; haben hast hat gehabt; people; goods print animal; state
    understand understands understood -; verstehen verstehst versteht verstanden; people; person text; state
    wash washes washed washing; waschen wäschst wäscht gewaschen; people; clothes vehicle fruit
    clean cleans cleaned cleaning; putzen putzt putzt geputzt; people; opening room
    paint paints painted painting; malen malst malt gemalt; people; beings; liked
    feed feeds fed feeding; füttern fütterst füttert gefüttert; people; animal
    carry carries carried carrying; tragen trägst trägt getragen; people; container thing seat device
    wear wears wore wearing; tragen trägst trägt getragen; people; clothes accessory; liked
    visit visits visited visiting; besuchen besuchst besucht besucht; people; people; liked
    meet meets met meeting; treffen triffst trifft getroffen; people; people
    greet greets greeted greeting; begrüßen begrüßt begrüßt begrüßt; people; people
    ask asks asked asking; fragen fragst fragt gefragt; people; people
    wake wakes woke waking +up; wecken weckst weckt geweckt; people; people
    steal steals stole stealing; stehlen stiehlst stiehlt gestohlen; person; small vehicle
    help helps helped helping; helfen hilfst hilft geholfen dative; people; people
    thank thanks thanked thanking; danken dankst dankt gedankt dative; people; people
    believe believes believed -; glauben glaubst glaubt geglaubt dative; people; people; state
    answer answers answered answering; antworten antwortest antwortet geantwortet dative; people; people
    follow follows followed following; folgen folgst folgt gefolgt dative sein; beings; beings vehicle
    belong belongs belonged - to; gehören gehörst gehört gehört dative; goods print animal; people; state
    listen listens listened listening to; zu-hören hörst hört zugehört dative; people; people
    open opens opened opening; auf-machen machst macht aufgemacht; people; opening container
    close closes closed closing; zu-machen machst macht zugemacht; people; opening container
    switch switches switched switching +on; ein-schalten schaltest schaltet eingeschaltet; people; device
    turn turns turned turning +off; aus-schalten schaltest schaltet ausgeschaltet; people; device
    put puts put putting +on; an-ziehen ziehst zieht angezogen; people; clothes
    take takes took taking +off; aus-ziehen ziehst zieht ausgezogen; people; clothes
    try tries tried trying +on; an-probieren probierst probiert anprobiert; people; clothes
    tidy tidies tidied tidying +up; auf-räumen räumst räumt aufgeräumt; people; room furniture
    pick picks picked picking +up; ab-holen holst holt abgeholt; people; people
    call calls called calling; an-rufen rufst ruft angerufen; people; people
    invite invites invited inviting; ein-laden lädst lädt eingeladen; people; people
    throw throws threw throwing +away; weg-werfen wirfst wirft weggeworfen; people; thing container clothes print
    bring brings brought bringing +along; mit-bringen bringst bringt mitgebracht; people; drink pastry small animal
    wait waits waited waiting for; warten wartest wartet gewartet auf:acc; people; people transit; located
    think thinks thought thinking of; denken denkst denkt gedacht an:acc; people; people animal
    laugh laughs laughed laughing at; lachen lachst lacht gelacht über:acc; people; people text
    talk talks talked talking to; sprechen sprichst spricht gesprochen mit:dat; people; people; located
    dream dreams dreamt dreaming of; träumen träumst träumt geträumt von:dat; people; people animal
    play plays played playing with; spielen spielst spielt gespielt mit:dat; beings; animal; located liked
    dance dances danced dancing; tanzen tanzt tanzt getanzt; people; ; located liked
    sleep sleeps slept sleeping; schlafen schläfst schläft geschlafen; beings; ; located
    work works worked working; arbeiten arbeitest arbeitet gearbeitet; people; ; located liked
    cry cries cried crying; weinen weinst weint geweint; people; ; located
    sing sings sang singing; singen singst singt gesungen; people; ; located liked
    travel travels travelled travelling; reisen reist reist gereist sein; people; ; liked
    swim swims swam swimming; schwimmen schwimmst schwimmt geschwommen sein; people; ; liked
    arrive arrives arrived arriving; an-kommen kommst kommt angekommen sein; people transit;
    depart departs departed departing; ab-fahren fährst fährt abgefahren sein; transit;
    stop stops stopped stopping; an-halten hältst hält angehalten; vehicle transit;
    get gets got getting +up; auf-stehen stehst steht aufgestanden sein; people;
    fall falls fell falling +asleep; ein-schlafen schläfst schläft eingeschlafen sein; beings;
    come comes came coming +back; zurück-kommen kommst kommt zurückgekommen sein; beings;
    work works worked working; funktionieren funktionierst funktioniert funktioniert; device;
    give gives gave giving; geben gibst gibt gegeben; people; small fruit pastry animal; give
    show shows showed showing; zeigen zeigst zeigt gezeigt; people; goods print text animal room; give
    lend lends lent lending; leihen leihst leiht geliehen; people; small vehicle clothes; give
    send sends sent sending; schicken schickst schickt geschickt; people; text small; give
    lay lays laid laying; legen legst legt gelegt; people; clothes print; put
    place places placed placing; stellen stellst stellt gestellt; people; container device; put
    hide hides hid hiding; verstecken versteckst versteckt versteckt; people; small; keep
    lie lies lay lying; liegen liegst liegt gelegen; clothes print;; rest
    stand stands stood standing; stehen stehst steht gestanden; container device;; rest
    sit sits sat sitting; sitzen sitzt sitzt gesessen; beings;; sit
    go goes went going; gehen gehst geht gegangen sein; people;; enter reach
    run runs ran running; rennen rennst rennt gerannt sein; beings;; enter
    drive drives drove driving; fahren fährst fährt gefahren sein; people;; reach
"""


class Noun(NamedTuple):
    """A noun in both languages."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    oblique: str  # German singular outside the nominative
    gender: str  # m, f or n
    kind: str

    @property
    def is_mass(self) -> bool:
        """Whether this is a mass noun."""
        return not self.german_plural

    @property
    def is_person(self) -> bool:
        """Whether its English pronoun is he or she."""
        return self.kind in ("person", "relative")


class Adjective(NamedTuple):
    """An adjective in both languages, with the kinds of nouns it can describe."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str
    stem: str  # German, before an ending
    scale: str
    polarity: int  # 1, 0 or -1
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb in both languages, with the kinds of nouns it takes."""

    base: str
    third: str
    past: str
    progressive: str
    particle: str
    preposition: str
    infinitive: str  # German, without the prefix
    ich: str
    du: str
    er: str
    participle: str
    prefix: str
    german_preposition: str
    case: str  # of the German object
    auxiliary: str  # of the German perfect
    subjects: frozenset[str]
    objects: frozenset[str]
    marks: frozenset[str]


class Adverb(NamedTuple):
    """A fixed expression of time or manner, piece by piece: the English words and the German words that they mean."""

    pieces: tuple[tuple[str, str], ...]
    frequency: bool = False


class Modal(NamedTuple):
    """A verb that takes another verb, which German moves to the end of the clause."""

    base: str
    third: str
    rest: str  # what follows in English: "to", "allowed to"
    german: tuple[str, str, str, str]  # ich, du, er, wir; empty words stand for "gern" beside the verb itself


def expand_kinds(text: str) -> frozenset[str]:
    """Return the kinds named by a list of kinds and groups."""
    return frozenset(kind for word in text.split() for kind in _KIND_GROUPS.get(word, word).split())


def _parse_optional(word: str) -> str:
    return "" if word == "-" else word.replace("_", " ")


def _parse_noun(entry: str, kind: str) -> Noun:
    english, german = entry.split(" = ")
    singular, _, plural = english.partition("/")
    article, forms = german.split(" ", 1)
    word, german_plural, oblique = (*forms.split("/"), "", "")[:3]
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    return Noun(singular, plural or singular + "s", word, german_plural, oblique or word, gender, kind)


def _parse_nouns() -> tuple[Noun, ...]:
    lines = ((line, kind) for kind, table in _NOUN_TABLE.items() for line in table.strip().splitlines())
    return tuple(_parse_noun(entry.strip(), kind) for line, kind in lines for entry in line.split(";"))


def _parse_adjective(line: str) -> Adjective:
    english, german, scale, kinds = line.split(";")
    word, comparative = english.split()
    german_word, german_comparative = german.split()
    name, sign = scale.split()
    return Adjective(
        word,
        _parse_optional(comparative),
        german_word,
        _parse_optional(german_comparative),
        _ADJECTIVE_STEMS.get(german_word, german_word),
        name,
        {"+": 1, "0": 0, "-": -1}[sign],
        expand_kinds(kinds),
    )


def _first_person(infinitive: str, er: str) -> str:
    if not er.endswith("t"):  # mögen and wissen: ich mag, er mag
        return er
    return infinitive[:-1] if infinitive.endswith("en") else infinitive[:-1] + "e"


def _parse_verb(line: str) -> Verb:
    english, german, subjects, objects, marks = (*line.split(";"), "", "")[:5]
    base, third, past, progressive, *rest = english.split()
    infinitive, du, er, participle, *government = german.split()
    prefix, _, stem = infinitive.rpartition("-")
    preposition, case = next((word.split(":") for word in government if ":" in word), ("", ""))
    return Verb(
        base=base,
        third=third,
        past=past,
        progressive=_parse_optional(progressive),
        particle=next((word[1:] for word in rest if word.startswith("+")), ""),
        preposition=next((word for word in rest if not word.startswith("+")), ""),
        infinitive=stem,
        ich=_first_person(stem, er),
        du=du,
        er=er,
        participle=participle,
        prefix=prefix,
        german_preposition=preposition,
        case=case or ("dat" if "dative" in government else "acc"),
        auxiliary="sein" if "sein" in government else "haben",
        subjects=expand_kinds(subjects),
        objects=expand_kinds(objects),
        marks=frozenset(marks.split()),
    )


def _parse_adverb(text: str, *, frequency: bool = False) -> Adverb:
    """Read "every=jeden day=Tag"; a plus sign joins words of one piece."""
    pieces = (piece.split("=") for piece in text.split())
    return Adverb(tuple((english.replace("+", " "), german.replace("+", " ")) for english, german in pieces), frequency)


def _parse_adverbs(text: str, *, frequency: bool = False) -> tuple[Adverb, ...]:
    return tuple(_parse_adverb(part, frequency=frequency) for part in text.split(";"))


NOUNS = _parse_nouns()
ADJECTIVES = tuple(_parse_adjective(line) for line in _ADJECTIVE_TABLE.strip().splitlines())
VERBS = tuple(_parse_verb(line) for line in _VERB_TABLE.strip().splitlines())

# "Be" is every sentence's own verb rather than one to draw; the others here take a whole clause as their object.
BE = _parse_verb("be is was -; sein bist ist gewesen sein;;; state")._replace(ich="bin")
SAY = _parse_verb("say says said -; sagen sagst sagt gesagt; people;; state")
BELIEVE = _parse_verb("believe believes believed -; glauben glaubst glaubt geglaubt; people;; state")
HOPE = _parse_verb("hope hopes hoped -; hoffen hoffst hofft gehofft; people;; state")
KNOW = _parse_verb("know knows knew -; wissen weißt weiß gewusst; people;; state")
ASK = _parse_verb("ask asks asked -; fragen fragst fragt gefragt; people;; state")
TRY = _parse_verb("try tries tried -; versuchen versuchst versucht versucht; people;; state")
FORGET = _parse_verb("forget forgets forgot -; vergessen vergisst vergisst vergessen; people;; state")

PAST_TIMES = _parse_adverbs("last=letzte week=Woche; yesterday=gestern; on=am Monday=Montag; on=am Saturday=Samstag")
FUTURE_TIMES = _parse_adverbs("next=nächste week=Woche; tomorrow=morgen; on=am Friday=Freitag; today=heute")
PRESENT_TIMES = _parse_adverbs("now=jetzt; today=heute; at+the=im moment=Moment")
HABITS = _parse_adverbs(
    "every=jeden day=Tag; in+the=am morning=Morgen; in+the=am evening=Abend; at+the=am weekend=Wochenende"
)
FREQUENCIES = _parse_adverbs("always=immer; often=oft; sometimes=manchmal; never=nie; rarely=selten", frequency=True)
WHERE, WHEN, WHY = _parse_adverbs("where=wo; when=wann; why=warum")

CAN = Modal("can", "can", "", ("kann", "kannst", "kann", "können"))
MUST = Modal("must", "must", "", ("muss", "musst", "muss", "müssen"))
SHOULD = Modal("should", "should", "", ("sollte", "solltest", "sollte", "sollten"))
WILL = Modal("will", "will", "", ("werde", "wirst", "wird", "werden"))
ALLOWED = Modal("be", "is", "allowed to", ("darf", "darfst", "darf", "dürfen"))
WANT = Modal("want", "wants", "to", ("will", "willst", "will", "wollen"))
LIKE = Modal("like", "likes", "to", ("", "", "", ""))


@cache
def nouns_of_kinds(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """Return the nouns of any of these kinds."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds)


@cache
def adjectives_for(kind: str) -> tuple[Adjective, ...]:
    """Return the adjectives that can describe nouns of this kind."""
    return tuple(adjective for adjective in ADJECTIVES if kind in adjective.kinds)


@cache
def verbs_with_mark(mark: str) -> tuple[Verb, ...]:
    """Return the verbs with this mark."""
    return tuple(verb for verb in VERBS if mark in verb.marks)
