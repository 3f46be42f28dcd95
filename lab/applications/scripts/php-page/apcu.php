<?php
require __DIR__ . '/../include/template.php';
page('Memory of PHP', '<p>Counted: ' . apcu_inc('counter') . '</p>');
