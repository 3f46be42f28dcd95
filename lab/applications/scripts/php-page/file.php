<?php
require __DIR__ . '/../include/template.php';
page('A file', require __DIR__ . '/../include/content.php');
