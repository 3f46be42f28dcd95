"""A small application on PostgreSQL: rows of a table in templates, a file, the time."""

import os
import time

import flask
import psycopg2

ROOT = os.path.dirname(os.path.abspath(__file__))

app = flask.Flask(__name__)
app.config["TEMPLATES_AUTO_RELOAD"] = True
connection = None


def query(sql, values=()):
    """The rows of a statement; the connection is kept, and opened again when the database has closed it."""
    global connection
    if connection is None or connection.closed:
        connection = psycopg2.connect(host=os.environ["SITE_DATABASE"], dbname="site", user="site")
        connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


@app.errorhandler(psycopg2.OperationalError)
def no_database(error):
    global connection
    connection = None
    return f"The database does not answer: {error}", 503


@app.get("/")
def items():
    rows = query("SELECT id, version, body FROM items ORDER BY id")
    return flask.render_template("items.html", items=rows)


@app.get("/item/<int:number>")
def item(number):
    rows = query("SELECT id, version, body FROM items WHERE id = %s", (number,))
    if not rows:
        flask.abort(404)
    return flask.render_template("item.html", item=rows[0])


@app.post("/item/<int:number>")
def save(number):
    version = int(flask.request.form["version"])
    query("UPDATE items SET version = %s WHERE id = %s", (version, number))
    return flask.redirect(f"/item/{number}", 303)


@app.get("/file")
def file():
    with open(os.path.join(ROOT, "content.txt"), encoding="utf-8") as content:
        return flask.render_template("file.html", content=content.read())


@app.get("/time")
def now():
    return f"It is {time.time():.6f}.\n"


@app.get("/database-time")
def database_now():
    return f"The database says {query('SELECT clock_timestamp()')[0][0]}.\n"
