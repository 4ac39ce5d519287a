"""SQLAlchemy and Django, which ask the catalogue and make statements of their own."""
import asyncio
import datetime as dt
import decimal

from .harness import ADDRESS, DATABASE, PORT, USER, case, same


class Library:
    """Tables for SQLAlchemy, made when it is there."""

    def __init__(self):
        import sqlalchemy as sa
        from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

        class Base(DeclarativeBase):
            pass

        class Author(Base):
            __tablename__ = "c_author"
            id: Mapped[int] = mapped_column(primary_key=True)
            name: Mapped[str] = mapped_column(sa.String(50), unique=True)
            books = relationship("Book", back_populates="author")

        class Book(Base):
            __tablename__ = "c_book"
            id: Mapped[int] = mapped_column(primary_key=True)
            title: Mapped[str] = mapped_column(index=True)
            price = mapped_column(sa.Numeric(10, 2))
            author_id = mapped_column(sa.ForeignKey("c_author.id"))
            is_sold: Mapped[bool] = mapped_column(default=False)
            added = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
            notes = mapped_column(sa.JSON)
            author = relationship("Author", back_populates="books")

        self.sa, self.base, self.author, self.book = sa, Base, Author, Book
        self.engine = sa.create_engine("postgresql+psycopg://" + ADDRESS)

    def filled(self):
        """A session on tables with two authors and five books."""
        from sqlalchemy.orm import Session
        self.base.metadata.drop_all(self.engine)
        self.base.metadata.create_all(self.engine)
        session = Session(self.engine)
        session.add_all([self.author(name="Ann"), self.author(name="Bob")])
        session.flush()
        ids = session.scalars(self.sa.select(self.author.id).order_by(self.author.id)).all()
        for number in range(5):
            price = decimal.Decimal(number) + decimal.Decimal("0.50")
            session.add(self.book(title=f"t{number}", price=price, author_id=ids[number % 2], notes={"n": number}))
        session.commit()
        return session


LIBRARY = []


def library():
    # Classes of tables can be defined only once.
    if not LIBRARY:
        LIBRARY.append(Library())
    return LIBRARY[0]


@case("SQLAlchemy: connects")
def _():
    l = library()
    with l.engine.connect() as c:
        same(c.execute(l.sa.text("SELECT 1")).scalar(), 1)


@case("SQLAlchemy: creates and drops tables")
def _():
    l = library()
    l.base.metadata.drop_all(l.engine)
    l.base.metadata.create_all(l.engine)
    l.base.metadata.create_all(l.engine)
    same(sorted(name for name in l.sa.inspect(l.engine).get_table_names() if name in ("c_author", "c_book")),
         ["c_author", "c_book"])


@case("SQLAlchemy: objects get their numbers")
def _():
    with library().filled() as session:
        l = library()
        author = l.author(name="Cid")
        session.add(author)
        session.flush()
        same(author.id, 3)
        session.rollback()


@case("SQLAlchemy: joins and aggregates")
def _():
    l = library()
    with l.filled() as session:
        sa = l.sa
        query = sa.select(l.author.name, sa.func.count(l.book.id), sa.func.sum(l.book.price))
        query = query.join(l.book).group_by(l.author.name).order_by(l.author.name)
        same([tuple(row) for row in session.execute(query)],
             [("Ann", 3, decimal.Decimal("7.50")), ("Bob", 2, decimal.Decimal("5.00"))])
        query = sa.select(l.book.title).where(l.book.title.in_(["t1", "t2"]), l.book.price > 2)
        same(session.scalars(query).all(), ["t2"])
        same(session.scalars(sa.select(l.book.title).where(l.book.title.ilike("T%")).limit(1).offset(4)
                             .order_by(l.book.id)).all(), ["t4"])


@case("SQLAlchemy: objects change and go")
def _():
    l = library()
    with l.filled() as session:
        book = session.scalars(l.sa.select(l.book).order_by(l.book.id)).first()
        book.title, book.is_sold = "new", True
        session.delete(session.scalars(l.sa.select(l.book).order_by(l.book.id.desc())).first())
        session.commit()
        same(session.scalars(l.sa.select(l.book.title).order_by(l.book.id)).all(), ["new", "t1", "t2", "t3"])


@case("SQLAlchemy: values keep their types")
def _():
    l = library()
    with l.filled() as session:
        book = session.scalars(l.sa.select(l.book).order_by(l.book.id)).first()
        same((book.is_sold, book.price, book.notes), (False, decimal.Decimal("0.50"), {"n": 0}))
        same(isinstance(book.added, dt.datetime) and book.added.tzinfo is not None, True)


@case("SQLAlchemy: savepoints")
def _():
    l = library()
    from sqlalchemy.exc import IntegrityError
    with l.filled() as session:
        try:
            with session.begin_nested():
                session.add(l.author(name="Ann"))
        except IntegrityError:
            pass
        session.add(l.author(name="Dan"))
        session.commit()
        same(session.scalar(l.sa.select(l.sa.func.count()).select_from(l.author)), 3)


@case("SQLAlchemy: the inspector")
def _():
    l = library()
    l.filled().close()
    inspector = l.sa.inspect(l.engine)
    same([column["name"] for column in inspector.get_columns("c_author")], ["id", "name"])
    same(str(inspector.get_columns("c_author")[1]["type"]), "VARCHAR(50)")
    same([column["nullable"] for column in inspector.get_columns("c_author")], [False, False])
    same(inspector.get_pk_constraint("c_author")["constrained_columns"], ["id"])
    keys = inspector.get_foreign_keys("c_book")
    same([(key["constrained_columns"], key["referred_table"], key["referred_columns"]) for key in keys],
         [(["author_id"], "c_author", ["id"])])
    same([index["column_names"] for index in inspector.get_indexes("c_book")], [["title"]])
    same([unique["column_names"] for unique in inspector.get_unique_constraints("c_author")], [["name"]])


@case("SQLAlchemy: reflects tables")
def _():
    l = library()
    l.filled().close()
    metadata = l.sa.MetaData()
    metadata.reflect(l.engine, only=["c_book"])
    same(sorted(metadata.tables), ["c_author", "c_book"])
    book = metadata.tables["c_book"]
    same([type(column.type).__name__ for column in book.columns][:5],
         ["INTEGER", "VARCHAR", "NUMERIC", "INTEGER", "BOOLEAN"])


@case("SQLAlchemy: insert or update")
def _():
    l = library()
    from sqlalchemy.dialects.postgresql import insert
    with l.filled() as session:
        statement = insert(l.author).values(name="Ann").on_conflict_do_nothing()
        session.execute(statement)
        statement = insert(l.author).values(name="Ann").on_conflict_do_update(
            index_elements=[l.author.name], set_={"name": "Anna"}).returning(l.author.id)
        same(session.scalars(statement).all(), [1])
        session.commit()
        same(session.scalars(l.sa.select(l.author.name).order_by(l.author.id)).all(), ["Anna", "Bob"])


@case("SQLAlchemy: many rows at a time")
def _():
    l = library()
    with l.filled() as session:
        rows = [{"name": f"a{number}"} for number in range(200)]
        ids = session.scalars(l.sa.insert(l.author).returning(l.author.id, sort_by_parameter_order=True), rows).all()
        same(ids, list(range(3, 203)))
        session.commit()


@case("SQLAlchemy over psycopg2")
def _():
    sa = library().sa
    library().filled().close()
    engine = sa.create_engine("postgresql+psycopg2://" + ADDRESS)
    with engine.begin() as c:
        same(c.execute(sa.text("SELECT name FROM c_author WHERE id = :id"), {"id": 1}).scalar(), "Ann")
        c.execute(sa.insert(library().author.__table__), [{"name": "x"}, {"name": "y"}])
        same(c.execute(sa.text("SELECT count(*) FROM c_author")).scalar(), 4)


@case("SQLAlchemy over asyncpg")
def _():
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
    l = library()
    l.filled().close()
    async def run():
        engine = create_async_engine("postgresql+asyncpg://" + ADDRESS)
        async with AsyncSession(engine) as session:
            session.add(l.author(name="async"))
            await session.commit()
            found = await session.scalars(l.sa.select(l.author.name).order_by(l.author.id))
            same(found.all(), ["Ann", "Bob", "async"])
            book = (await session.scalars(l.sa.select(l.book).where(l.book.price == decimal.Decimal("1.50")))).one()
            same(book.title, "t1")
        await engine.dispose()
    asyncio.run(run())


def django_ready():
    import django
    from django.conf import settings
    if not settings.configured:
        apps = ["auth", "contenttypes", "sessions", "admin", "messages"]
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": DATABASE, "USER": USER,
                                   "HOST": "127.0.0.1", "PORT": PORT}},
            INSTALLED_APPS=[f"django.contrib.{app}" for app in apps], USE_TZ=True, SECRET_KEY="x",
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
        django.setup()


@case("Django: migrations of its own applications")
def _():
    django_ready()
    from django.core.management import call_command
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)


@case("Django: objects in a transaction")
def _():
    django_ready()
    from django.contrib.auth.models import User
    from django.db import IntegrityError, transaction
    User.objects.all().delete()
    with transaction.atomic():
        user = User.objects.create_user("ann", "a@example.org", "secret")
        try:
            with transaction.atomic():
                User.objects.create_user("ann", "b@example.org", "secret")
            raise AssertionError("no error")
        except IntegrityError:
            pass
    same(user.pk is not None, True)
    same(User.objects.filter(username__icontains="AN", date_joined__year__gte=2020).count(), 1)
    same(User.objects.get(pk=user.pk).is_active, True)


@case("Django: relations, aggregates, bulk")
def _():
    django_ready()
    from django.contrib.auth.models import Group, User
    from django.db.models import Count
    User.objects.all().delete()
    Group.objects.all().delete()
    groups = Group.objects.bulk_create([Group(name=f"g{number}") for number in range(3)])
    user = User.objects.create_user("bob")
    user.groups.set(groups[:2])
    found = Group.objects.annotate(n=Count("user")).order_by("name").values_list("name", "n")
    same(list(found), [("g0", 1), ("g1", 1), ("g2", 0)])
    same(User.objects.filter(groups__name__in=["g0", "g1"]).distinct().count(), 1)
    same(Group.objects.filter(name__startswith="g1").update(name="other"), 1)
    same(Group.objects.filter(name="g2").delete()[0], 1)
    same(User.objects.filter(groups__name="other").exists(), True)


@case("Django: what it finds about tables")
def _():
    django_ready()
    from django.db import connection
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        same("auth_user" in tables, True)
        columns = {c.name: c for c in connection.introspection.get_table_description(cursor, "auth_user")}
        same((columns["username"].null_ok, columns["is_staff"].type_code), (False, 16))
        relations = connection.introspection.get_relations(cursor, "auth_permission")
        same(relations, {"content_type_id": ("id", "django_content_type")})
        constraints = connection.introspection.get_constraints(cursor, "auth_user")
        same(any(c["primary_key"] and c["columns"] == ["id"] for c in constraints.values()), True)
        same(any(c["unique"] and c["columns"] == ["username"] for c in constraints.values()), True)
