<?php
require __DIR__ . '/../include/template.php';
$links = '';
for ($id = 1; $id <= 20; $id++) {
    $links .= "<li><a href=\"/item.php?id=$id\">item $id</a></li>\n";
}
page('A page of PHP', "<ul>\n$links</ul>");
