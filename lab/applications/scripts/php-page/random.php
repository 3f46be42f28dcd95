<?php
require __DIR__ . '/../include/template.php';
page('Chance', '<p>A number: ' . random_int(0, PHP_INT_MAX) . '</p>');
