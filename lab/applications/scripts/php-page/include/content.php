<?php
return '<p>This is the content of a file, @VERSION@</p>';
