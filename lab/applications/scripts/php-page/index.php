<?php
require __DIR__ . '/../include/database.php';
require __DIR__ . '/../include/template.php';
$links = '';
foreach (database()->query('SELECT id FROM items ORDER BY id', PDO::FETCH_COLUMN, 0) as $id) {
    $links .= "<li><a href=\"/item.php?id=$id\">item $id</a></li>\n";
}
page('A page of PHP', "<ul>\n$links</ul>");
